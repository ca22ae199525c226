// node test/all.mjs [--jobs=N] [--timeout=SECONDS] [--grep=PATTERN …] FILE …: runs compiled tests, each in a
// process of its own, and writes their TAP to the standard output. The command of tap does the same with
// modules loaded into each process that we do not use: they take twice as long as a short test. The slowest
// files of the last run begin first. The last line tells the seconds of CPU of all files.
import { readFileSync, statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import t from 'tap'
import { ordered, readTimes } from './times.mjs'

const words = process.argv.slice(2)
const values = name =>
  words.filter(word => word.startsWith(`--${name}=`)).map(word => word.slice(name.length + 3))
// Many files wait more than they work.
const [jobs = Math.min(8, 2 * availableParallelism())] = values('jobs').map(Number)
const [seconds = 600] = values('timeout').map(Number)
const grep = values('grep')
const env = {
  ...process.env,
  TAP_TIMEOUT: String(seconds),
  ...(grep.length > 0 ? { TAP_GREP: grep.join('\n') } : {})
}

t.jobs = jobs
t.setTimeout(0)
const files = words.filter(word => !word.startsWith('--'))
for (const file of ordered(files, readTimes(), file => statSync(file, { throwIfNoEntry: false })?.size ?? 0))
  t.spawn(process.execPath, ['--enable-source-maps', file], {
    name: file,
    env,
    buffered: jobs > 1,
    timeout: seconds * 1000
  })

t.teardown(() => {
  // cutime and cstime of proc_pid_stat(5), in hundredths of a second.
  const fields = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  console.log(`# cpu=${(Number(fields[13]) + Number(fields[14])) / 100}`)
})
