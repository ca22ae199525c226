import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkout } from './support/programs.js'

const words = ['stable', 'new', 'virtual only', 'not tried']
const read = (name: string) => readFileSync(join(checkout, name), 'utf8')
const page = read('docs/maturity.md')
/** The rows of the tables of parts: those with four cells. */
const rows = page
  .split('\n')
  .filter(line => line.startsWith('| '))
  .map(line =>
    line
      .slice(1, -1)
      .split('|')
      .map(cell => cell.trim())
  )
  .filter(cells => cells.length === 4 && cells[0] !== 'part')

t.test('each part has a word of the list, and tests that are there', t => {
  t.ok(rows.length > 50, 'the rows are found')
  for (const [part = '', word = '', proof = ''] of rows) {
    t.ok(words.includes(word), `${part}: ${word}`)
    const tests = proof.split(', ')
    for (const test of tests)
      t.ok(/^test\/\S+\.test\.ts$/.test(test) && existsSync(join(checkout, test)), test)
  }
  for (const word of words) t.ok(page.includes(`\n| ${word} | `), `${word} is explained`)
  t.equal(new Set(rows.map(([part]) => part)).size, rows.length, 'no part twice')
  t.end()
})

t.test('parts that no machine has run are called so', t => {
  const wordOf = (part: RegExp) => rows.find(([name = '']) => part.test(name))?.[1]
  for (const part of [/^kickstart and Anaconda/, /^Anaconda with/, /preseed/, /autoinstall/, /arm64/])
    t.equal(wordOf(part), 'not tried', String(part))
  t.match(page, /nothing of it was tried on real hardware/)
  t.end()
})

t.test('the page is found from the README and the list of pages', t => {
  t.match(read('README.md'), /\]\(docs\/maturity\.md\)/)
  t.match(read('docs/README.md'), /\]\(maturity\.md\)/)
  t.end()
})
