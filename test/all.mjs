// node test/all.mjs [--jobs=N] [--timeout=SECONDS] [--grep=PATTERN …] FILE …: runs compiled tests and writes
// their TAP to the standard output. The command of tap does the same with modules loaded into each process that
// we do not use: they take twice as long as a short test. Short files share a process, which loads the code
// once. The slowest of the last run begin first. The last line tells the seconds of CPU of all files.
import { readFileSync, statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { cpuSeconds, ordered, readTimes, shared } from './times.mjs'

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
  // The first pattern is for the names of the files.
  ...(grep.length > 0 ? { TAP_GREP: ['/./', ...grep].join('\n') } : {})
}
/** A file that changes its process, or measures it, has one of its own. */
const ownProcess = /process\.(env\.\w+ = |(cpuUsage|memoryUsage|umask|chdir|exit|abort)\b)/
/** Such a file may take long, as far as its time is not known. */
const startsPrograms =
  /\/(child|daemon|built-tree|crashing-daemon|controllers|site-controllers|etcd|namespaces|virtual-machine)\.js"/

t.jobs = jobs
t.setTimeout(0)
const files = words.filter(word => !word.startsWith('--'))
const times = readTimes()
const isAlone = file => {
  const text = readFileSync(file, 'utf8')
  return process.env.SVCD_LONG || ownProcess.test(text) || (!(file in times) && startsPrograms.test(text))
}
const order = ordered(shared(files, times, isAlone), times, file => statSync(file).size)
// tap has each process that it starts, and all that those start, count the calls of each block of code and write
// them to .tap/coverage: without it they take a tenth to a fifth less CPU.
const { NODE_OPTIONS: options } = process.env
const plain = options === undefined ? ['-u', 'NODE_OPTIONS'] : [`NODE_OPTIONS=${options}`]
const command = [process.execPath, '--enable-source-maps', join(import.meta.dirname, 'together.mjs')]
for (const group of order)
  t.spawn('env', [...plain, ...command], {
    name: group.join(' '),
    env: { ...env, SVCD_TEST_FILES: group.join(' ') },
    buffered: jobs > 1,
    timeout: group.length * seconds * 1000
  })

t.teardown(() => console.log(`# cpu=${cpuSeconds()}`))
