// Prints [paths] state, [paths] files and [image] directory of an ini, one a line.
import { loadConfig } from '../dist/config/load.js'

const { paths, image } = loadConfig(process.argv[2] ?? '', [])
console.log([paths.state, paths.files, image.directory].join('\n'))
