// node test/all.mjs [--jobs=N] [--timeout=SECONDS] [--grep=PATTERN …] FILE …: runs compiled tests, each in a
// process of its own, and writes their TAP to the standard output. The command of tap does the same with
// modules loaded into each process that we do not use: they take twice as long as a short test.
import t from 'tap'

const words = process.argv.slice(2)
const values = name =>
  words.filter(word => word.startsWith(`--${name}=`)).map(word => word.slice(name.length + 3))
const [jobs = 3] = values('jobs').map(Number)
const [seconds = 600] = values('timeout').map(Number)
const grep = values('grep')
const env = {
  ...process.env,
  TAP_TIMEOUT: String(seconds),
  ...(grep.length > 0 ? { TAP_GREP: grep.join('\n') } : {})
}

t.jobs = jobs
t.setTimeout(0)
for (const file of words.filter(word => !word.startsWith('--')))
  t.spawn(process.execPath, ['--enable-source-maps', file], {
    name: file,
    env,
    buffered: jobs > 1,
    timeout: seconds * 1000
  })
