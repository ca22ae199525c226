// SVCD_TEST_FILES='FILE …' node test/together.mjs: runs compiled tests one after another in this process. Each
// file is a test with its own name, because the tap that it imports is that test (test/compile.mjs). A comment
// tells its seconds of CPU, with those of the programs that it started and waited for.
import { pathToFileURL } from 'node:url'
import t from '../.cache/node_modules/@tapjs/tap.js'
import { cpuSeconds } from './times.mjs'

const files = process.env.SVCD_TEST_FILES.split(' ')
const timeout = 1000 * Number(process.env.TAP_TIMEOUT)
t.setTimeout(timeout * files.length)
let before = 0
for (const file of files) {
  await t.test(file, { timeout }, t => {
    globalThis[Symbol.for('svcd.test-file')] = t
    return import(pathToFileURL(file).href)
  })
  const cpu = cpuSeconds()
  t.comment(`cpu=${(cpu - before).toFixed(2)} ${file}`)
  before = cpu
}
