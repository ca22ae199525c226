// Prints the shipped ini; arguments `section.key=value` replace defaults, such as paths of the installed
// file.
import { iniText } from '../dist/config/lines.js'

const settings = process.argv.slice(2).map(argument => {
  const equals = argument.indexOf('=')
  return [argument.slice(0, equals), argument.slice(equals + 1)]
})
process.stdout.write(iniText(Object.fromEntries(settings)))
