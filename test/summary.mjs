// Tells a TAP file: a line for each test file, what failed with its diagnostics, and how many assertions
// passed.
import { readFileSync } from 'node:fs'

const lines = readFileSync(process.argv[2], 'utf8').split('\n')
let failing = false
for (const line of lines) {
  const indent = line.length - line.trimStart().length
  if (/^ *(not )?ok /.test(line)) failing = line.trimStart().startsWith('not ok')
  if (/^(not )?ok /.test(line)) console.log(line)
  else if (failing && indent > 0) console.log(line)
}
const total = lines.findLast(line => line.startsWith('# { total')) ?? ''
const counts = Object.fromEntries(
  [...total.matchAll(/(\w+): (\d+)/g)].map(([, key, count]) => [key, Number(count)])
)
const failed = total === '' ? 1 : (counts.fail ?? 0) + (counts.todo ?? 0) + (counts.skip ?? 0)
console.log(`${counts.pass ?? 0} passed, ${failed} failed`)
if (failed > 0) process.exitCode = 1
