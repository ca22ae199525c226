// `make bench-compare`: what became slower than the spread of the rounds explains, between two files of
// run.mjs.
//   node bench/compare.mjs [--base bench/baseline.json] [--run bench/out/latest.json]
// Where a figure has a yardstick the ratios are compared, so that another machine or a busy one matters less.
// It is slower when the median of each run lies outside the other's spread, on the worse side. Ends with 1 if
// anything is. One round has no spread, so nothing is said of such a figure. What only one of the two files
// has is named.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { ratios, spread } from './figures.mjs'
import { runsOf } from './reports.mjs'
import { columns, shown } from './table.mjs'

const at = name => fileURLToPath(new URL(name, import.meta.url))
const { values: flags } = parseArgs({
  options: {
    base: { type: 'string', default: at('baseline.json') },
    run: { type: 'string', default: at('out/latest.json') }
  }
})
const [base, run] = [flags.base, flags.run].map(path => JSON.parse(readFileSync(path, 'utf8')))

/** Figures of a report by case and row. */
const figuresOf = report =>
  new Map(
    report.cases.flatMap(({ name, title, figures = [] }) =>
      figures.map((figure, i) => [
        `${name} ${i === 0 ? '' : figure.what}`,
        {
          ...figure,
          title: i === 0 ? title : `${title}: ${figure.what}`,
          values: ratios(figure) ?? figure.rounds
        }
      ])
    )
  )

function verdict(before, now) {
  if (before.values.length < 2 || now.values.length < 2) return 'one round'
  const [a, b] = [spread(before.values), spread(now.values)]
  if (b.median > a.most && a.median < b.least) return now.less ? 'SLOWER' : 'better'
  if (b.median < a.least && a.median > b.most) return now.less ? 'better' : 'SLOWER'
  return 'the same'
}

const [before, now] = [base, run].map(figuresOf)
const rows = []
const onlyIn = (these, those) => [...these].filter(([key]) => !those.has(key)).map(([, { title }]) => title)
for (const [key, figure] of now) {
  const old = before.get(key)
  if (old === undefined) continue
  const [a, b] = [old, figure].map(({ values }) => spread(values).median)
  const unit = figure.beside ? `of ${figure.beside.what}` : figure.unit
  rows.push([
    figure.title,
    unit,
    shown(old.values),
    shown(figure.values),
    Number.isFinite(b / a) ? (b / a).toFixed(2) : '-',
    verdict(old, figure)
  ])
}
const named = (word, list) => list.length > 0 && console.log(`\n${word}:\n  ${list.join('\n  ')}`)
const failing = report =>
  new Set(report.cases.filter(({ failed }) => failed !== undefined).map(({ name }) => name))
const [failedBefore, failedNow] = [failing(base), failing(run)]
/** Returns the origin of a file of figures: `svcd COMMIT (MACHINE)`, with its cases where there are several runs. */
const source = report =>
  runsOf(report)
    .map(
      ({ commit, machine, date, cases }, _, { length }) =>
        `svcd ${commit} (${machine}${length > 1 ? `, ${date.slice(0, 16)}: ${cases.join(', ')}` : ''})`
    )
    .join(' and ')
const nameOf = report => [...new Set(runsOf(report).map(({ commit }) => commit))].join(', ')
console.log(`Before: ${source(base)}\nNow: ${source(run)}\n`)
console.log(columns([['case', 'unit', nameOf(base), nameOf(run), 'factor', ''], ...rows]))
named(
  'failed before, measured now',
  [...failedBefore].filter(name => run.cases.some(one => one.name === name && !one.failed))
)
named('only in the run before, so not compared', onlyIn(before, now))
named('only in this run, so not compared', onlyIn(now, before))
named(
  'measured in one round, which has no spread: whether they became slower is not known',
  rows.filter(row => row.at(-1) === 'one round').map(([title]) => title)
)
const worse = [...rows.filter(row => row.at(-1) === 'SLOWER').map(([title]) => title)]
const broken = [...failedNow].filter(name => !failedBefore.has(name)).map(name => `${name}: it fails`)
named('slower than the spread explains', [...worse, ...broken])
if (worse.length + broken.length > 0) process.exitCode = 1
else console.log('\nOf what can be compared, nothing became slower than the spread explains.')
