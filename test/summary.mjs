// node test/summary.mjs LOG [WORD …]: reports a TAP file, whose run had these words: a line for each test
// file, what failed with its diagnostics, the slowest files, and how many assertions passed.
import { readFileSync } from 'node:fs'
import { keepTimes, slowest, timesIn } from './times.mjs'

const [log, ...words] = process.argv.slice(2)
const lines = readFileSync(log, 'utf8').split('\n')
let failing = false
for (const line of lines) {
  const indent = line.length - line.trimStart().length
  if (/^ *(not )?ok /.test(line)) failing = line.trimStart().startsWith('not ok')
  if (/^(not )?ok /.test(line)) console.log(line)
  else if (failing && indent > 0) console.log(line)
}
const times = timesIn(lines)
// A part of a file, or more rounds of it, tells nothing of the next run.
if (!process.env.SVCD_LONG && !words.some(word => word.startsWith('--grep='))) keepTimes(times)
for (const line of slowest(times)) console.log(line)
const cpu = lines.findLast(line => line.startsWith('# cpu='))
if (cpu && Object.keys(times).length > 1) console.log(`${cpu.slice(6).padStart(7)}  of CPU`)
const total = lines.findLast(line => line.startsWith('# { total')) ?? ''
const counts = Object.fromEntries(
  [...total.matchAll(/(\w+): (\d+)/g)].map(([, key, count]) => [key, Number(count)])
)
const failed = total === '' ? 1 : (counts.fail ?? 0) + (counts.todo ?? 0) + (counts.skip ?? 0)
console.log(`${counts.pass ?? 0} passed, ${failed} failed`)
if (failed > 0) process.exitCode = 1
