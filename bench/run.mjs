// `make bench`: runs each case in a process of its own, in turn with its yardstick, and ends with a table
// and a file.
//   node bench/run.mjs [--cases menu,create] [--nodes 100,10000] [--rounds 5] [--ms 800] [--out FILE]
//                      [--against ../old --base bench/baseline.json] [--limit 900]
// A case is also chosen by the beginning of its name. When it is stopped, it shows what was measured so far.
// With --against, each case is measured for this checkout and then for the other, so that both have the same
// machine; of the baseline, the cases that were measured are replaced, and its head says which ones are of
// which run. A case that takes longer than the limit, in seconds, is a row that says so.
import { execFileSync, fork } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { dirname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { cases } from './cases.mjs'
import { ownNetwork } from './own-network.mjs'
import { withRun } from './reports.mjs'
import { table } from './table.mjs'

const { values: flags } = parseArgs({
  options: {
    cases: { type: 'string', default: '' },
    nodes: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '5' },
    ms: { type: 'string', default: '800' },
    out: { type: 'string', default: fileURLToPath(new URL('out/latest.json', import.meta.url)) },
    against: { type: 'string' },
    base: { type: 'string', default: fileURLToPath(new URL('baseline.json', import.meta.url)) },
    limit: { type: 'string', default: '900' },
    list: { type: 'boolean', default: false }
  }
})

const listOf = text => text.split(',').filter(Boolean)
const wanted = listOf(flags.cases)
const named = cases.map(({ name }) => name)
const isMeant = (name, word) => name === word || (!named.includes(word) && name.startsWith(word))
const chosen = cases.filter(({ name }) => wanted.length === 0 || wanted.some(word => isMeant(name, word)))
const unknown = wanted.filter(word => !named.some(name => isMeant(name, word)))
if (unknown.length > 0) fail(`there is no case ${unknown.join(', ')}: ${named.join(', ')}`)
const numbers = Object.fromEntries(
  ['nodes', 'rounds', 'ms', 'limit'].map(key => {
    const list = listOf(flags[key]).map(Number)
    if (list.length === 0 || list.some(value => !Number.isSafeInteger(value) || value < 1))
      fail(`--${key} ${flags[key]}: a whole number from 1`)
    return [key, key === 'nodes' ? list : list[0]]
  })
)

function fail(message) {
  console.error(message)
  process.exit(2)
}

if (flags.list) {
  for (const { name, title } of chosen) console.log(`${name.padEnd(18)} ${title}`)
  process.exit(0)
}

const git = (checkout, ...args) => {
  try {
    return execFileSync('git', ['-C', checkout, ...args], { encoding: 'utf8', stdio: 'pipe' }).trim()
  } catch {
    return 'unknown'
  }
}

/** Describes a checkout to measure, and the file for its figures. */
const measured = (checkout, file) => ({
  checkout,
  file,
  report: {
    commit:
      git(checkout, 'rev-parse', '--short', 'HEAD') +
      (git(checkout, 'status', '--porcelain', 'lib', 'templates') ? '-dirty' : ''),
    date: new Date().toISOString(),
    node: process.version,
    machine: `${cpus().length} CPUs (${cpus()[0]?.model})`,
    load: loadavg()[0],
    rounds: numbers.rounds,
    ms: numbers.ms,
    cases: []
  }
})
const all = [measured(process.env.BENCH_CHECKOUT ?? fileURLToPath(new URL('..', import.meta.url)), flags.out)]
if (flags.against !== undefined) all.push(measured(resolve(flags.against), flags.base))

function finish() {
  for (const { file, report } of all) {
    mkdirSync(dirname(file), { recursive: true })
    report.loadAfter = loadavg()[0]
    const old = report === all[1]?.report && existsSync(file) && JSON.parse(readFileSync(file, 'utf8'))
    writeFileSync(file, `${JSON.stringify(old ? withRun(old, report) : report, null, 1)}\n`)
    console.log(`\n${table(report)}\n\nThe same as JSON: ${file}`)
  }
}

let child
// Also when it is stopped: a signal ends this process by way of harness.mjs.
process.on('exit', () => {
  child?.kill('SIGTERM')
  finish()
})

/** Runs one case of one size in a process of its own; a case that fails is a row with the reason. */
const measure = ({ name, apart }, nodes, checkout) =>
  new Promise(resolve => {
    const env = { ...process.env, BENCH_CHECKOUT: checkout }
    const [execPath, ...execArgv] = ownNetwork.command
    const where = apart
      ? { execPath, execArgv: [...execArgv, process.execPath], env: { ...env, ...ownNetwork.env } }
      : { env }
    child = fork(new URL('case.mjs', import.meta.url), where)
    const failed = reason => resolve({ failed: reason })
    const limit = setTimeout(() => {
      failed(`did not end within ${numbers.limit} s`)
      child.kill('SIGTERM')
    }, numbers.limit * 1000)
    child.once('message', resolve)
    child.once('exit', (code, signal) => {
      clearTimeout(limit)
      failed(`ended with ${signal ?? code}`)
    })
    child.send({ name, nodes, rounds: numbers.rounds, ms: numbers.ms })
  })

for (const one of chosen)
  for (const nodes of one.sized ? numbers.nodes : [undefined])
    for (const { checkout, report } of all) {
      const title = nodes === undefined ? one.title : `${one.title}; ${nodes.toLocaleString('en')} nodes`
      const from = performance.now()
      process.stderr.write(`${title}${all.length > 1 ? ` (${report.commit})` : ''} … `)
      const result = await measure(one, nodes, checkout)
      const gone = child.exitCode === null && child.signalCode === null
      if (gone) await new Promise(done => child.once('exit', done))
      process.stderr.write(
        `${((performance.now() - from) / 1000).toFixed(0)} s${result.failed ? `: ${result.failed}` : ''}\n`
      )
      report.cases.push({ name: nodes === undefined ? one.name : `${one.name}/${nodes}`, title, ...result })
    }
