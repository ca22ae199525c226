// The table that a run ends with.
import { met, ratios, spread } from './figures.mjs'

const short = value => {
  if (!Number.isFinite(value)) return '-'
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en')
  return String(Number(value.toPrecision(3)))
}

export const shown = values => {
  const { median, least, most } = spread(values)
  return values.length === 1 ? short(median) : `${short(median)} (${short(least)}..${short(most)})`
}

const wanted = ({ ratio, always, atLeast, atMost }) =>
  `${always ? 'always ' : ''}${ratio ? '× ' : ''}${atLeast === undefined ? '<=' : '>='} ${short(atLeast ?? atMost)}`

/** Rows of texts in columns, the first one to the left. */
export function columns(rows) {
  const widths = rows[0].map((_, i) => Math.max(...rows.map(row => row[i].length)))
  const line = row =>
    row.map((text, i) => (i === 0 ? text.padEnd(widths[i]) : text.padStart(widths[i]))).join('  ')
  return rows.map(row => line(row).trimEnd()).join('\n')
}

function rowsOf({ title, figures, failed }) {
  if (failed !== undefined)
    return [
      [title, '', '', '', '', 'failed'],
      [`  ${failed}`, '', '', '', '', '']
    ]
  return figures.map((figure, i) => [
    i === 0 ? `${title}${figure.what && `: ${figure.what}`}` : `  ${figure.what}`,
    `${shown(figure.rounds)} ${figure.unit}`,
    figure.beside ? `${figure.beside.what} ${shown(figure.beside.rounds)}` : '',
    ratios(figure) ? `× ${shown(ratios(figure))}` : '',
    figure.target ? wanted(figure.target) : '',
    figure.target ? (met(figure) ? 'met' : 'MISSED') : ''
  ])
}

/** A report of run.mjs as text. */
export function table(report) {
  const { commit, date, node, machine, load, loadAfter, rounds } = report
  const head = [
    `svcd ${commit}, ${date.slice(0, 16)}, node ${node}, ${machine}, load ${load.toFixed(1)} before, ${loadAfter.toFixed(1)} after`,
    `Medians (least..most) of ${rounds} rounds in turn with the yardstick; all on one machine, over loopback.`,
    'A target is met by the median; one that says "always", by each round.'
  ]
  const titles = ['case', 'svcd', 'beside it', 'ratio', 'target', '']
  return `${head.join('\n')}\n\n${columns([titles, ...report.cases.flatMap(rowsOf)])}`
}
