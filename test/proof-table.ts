// Prints the rows that `proof` (test/support/proof.ts) wrote to the file given, as one table; ends with 1
// when a proof is missing or one of its first four figures is not 0.
import { readFileSync } from 'node:fs'
import { type ProofRow, proofs } from './support/proof.js'

const [file = ''] = process.argv.slice(2)
const rows = readFileSync(file, 'utf8')
  .split('\n')
  .filter(line => line !== '')
  .map(line => JSON.parse(line) as ProofRow)

const columns: readonly (readonly [string, (row: ProofRow) => string])[] = [
  ['proof', ({ name }) => name],
  ['tried', ({ tried }) => tried.toLocaleString('en')],
  ['crashes', ({ crashes }) => count(crashes)],
  ['5xx not meant', ({ unmeant5xx }) => count(unmeant5xx)],
  ['lost', ({ lost }) => count(lost)],
  ['half-done', ({ halfDone }) => count(halfDone)],
  ['serves again', ({ backMs }) => (backMs === undefined ? '-' : `${(backMs / 1000).toFixed(1)} s`)],
  ['memory', ({ memoryMb }) => (memoryMb === undefined ? '-' : `${Math.round(memoryMb)} MB`)],
  ['', ({ note }) => note ?? '']
]

const lines = [columns.map(([title]) => title)]
const missing: string[] = []
for (const name of proofs) {
  const found = rows.filter(row => row.name === name)
  if (found.length === 0) {
    missing.push(name)
    lines.push([name, 'not shown'])
  }
  for (const row of found) lines.push(columns.map(([, text]) => text(row)))
}
const widths = columns.map((_, column) => Math.max(...lines.map(line => line[column]?.length ?? 0)))
for (const line of lines)
  console.log(
    line
      .map((text, column) => (column === 0 ? text.padEnd(widths[0] ?? 0) : padded(text, column)))
      .join('  ')
      .trimEnd()
  )

const bad = rows.filter(({ crashes, unmeant5xx, lost, halfDone }) =>
  [crashes, unmeant5xx, lost, halfDone].some(figure => (figure ?? 0) > 0)
)
console.log(`${proofs.length - missing.length} of ${proofs.length} proofs shown, ${bad.length} with a fault`)
if (missing.length > 0 || bad.length > 0) process.exitCode = 1

/** Figures stand to the right of their column, the note to the left. */
function padded(text: string, column: number): string {
  return column === columns.length - 1 ? text : text.padStart(widths[column] ?? 0)
}

function count(figure: number | undefined): string {
  return figure === undefined ? '-' : figure.toLocaleString('en')
}
