// node test/summary.mjs LOG [WORD …]: reports a TAP file, whose run had these words: a line for each test
// file, what failed with its diagnostics, the slowest files, and how many assertions passed.
import { readFileSync } from 'node:fs'
import { cpuIn, keepTimes, slowest, timesIn } from './times.mjs'

const [log, ...words] = process.argv.slice(2)
const lines = readFileSync(log, 'utf8').split('\n')
let failing = false
for (const line of lines) {
  if (/^ *(not )?ok /.test(line)) failing = line.trimStart().startsWith('not ok')
  // A process that passes tells nothing that its files do not tell.
  if (/^ {4}(not )?ok /.test(line)) console.log(line.slice(4))
  else if (failing) console.log(line)
}
const times = timesIn(lines)
// A part of a file, or more rounds of it, tells nothing of the next run.
if (!process.env.SVCD_LONG && !words.some(word => word.startsWith('--grep='))) keepTimes(times)
for (const line of slowest(times, cpuIn(lines))) console.log(line)
const cpu = lines.findLast(line => line.startsWith('# cpu='))
if (cpu && Object.keys(times).length > 1) console.log(`${cpu.slice(6).padStart(7)}  of CPU`)
const total = lines.findLast(line => line.startsWith('# { total')) ?? ''
const counts = Object.fromEntries(
  [...total.matchAll(/(\w+): (\d+)/g)].map(([, key, count]) => [key, Number(count)])
)
// A process that crashes has no assertion that fails, and its other files have no line.
const crashes = total === '' ? 1 : lines.filter(line => line.startsWith('not ok')).length
const failed = Math.max(crashes, (counts.fail ?? 0) + (counts.todo ?? 0) + (counts.skip ?? 0))
console.log(`${counts.pass ?? 0} passed, ${failed} failed`)
if (failed > 0) process.exitCode = 1
