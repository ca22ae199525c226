// `make bench-compare`: what became slower than the spread of the rounds explains, between two files of run.mjs.
//   node bench/compare.mjs [--base bench/baseline.json] [--run bench/out/latest.json]
// Where a figure has a yardstick the ratios are compared, so that another machine or a busy one matters less. It is slower
// when the median of each run lies outside the other's spread, on the worse side. Ends with 1 if anything is.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { ratios, spread } from './figures.mjs'
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
  const [a, b] = [spread(before.values), spread(now.values)]
  if (b.median > a.most && a.median < b.least) return now.less ? 'SLOWER' : 'better'
  if (b.median < a.least && a.median > b.most) return now.less ? 'better' : 'SLOWER'
  return 'the same'
}

const [before, now] = [base, run].map(figuresOf)
const rows = []
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
    (b / a).toFixed(2),
    verdict(old, figure)
  ])
}
const named = (word, list) => list.length > 0 && console.log(`\n${word}:\n  ${list.join('\n  ')}`)
const failing = report =>
  new Set(report.cases.filter(({ failed }) => failed !== undefined).map(({ name }) => name))
const [failedBefore, failedNow] = [failing(base), failing(run)]
console.log(`svcd ${base.commit} (${base.machine}) and svcd ${run.commit} (${run.machine})\n`)
console.log(columns([['case', 'unit', base.commit, run.commit, 'factor', ''], ...rows]))
named(
  'failed before, measured now',
  [...failedBefore].filter(name => run.cases.some(one => one.name === name && !one.failed))
)
const worse = [...rows.filter(row => row.at(-1) === 'SLOWER').map(([title]) => title)]
const broken = [...failedNow].filter(name => !failedBefore.has(name)).map(name => `${name}: it fails`)
named('slower than the spread explains', [...worse, ...broken])
if (worse.length + broken.length > 0) process.exitCode = 1
else console.log('\nNothing became slower than the spread explains.')
