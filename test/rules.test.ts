import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t from 'tap'
import { checkout } from './support/programs.js'

const itself = 'test/rules.test.ts'
const places = [
  'bench',
  'bin',
  'build',
  'changelog',
  'docs',
  'dracut',
  'etc',
  'initramfs-tools',
  'lib',
  'libexec',
  'templates',
  'test'
]

/** A citation: the word, a number, and further numbers after a comma, a semicolon, "and" or "to". */
const citation = /\brules (\d[\d.]*(?:(?:,|;| and| to)? \d[\d.]*)*)/g
/** The same in docs/rules.md itself, where the word is left out. */
const reference = /\((?:see )?(\d+\.\d+(?:, \d+\.\d+)*)\)|\bsee (\d+\.\d+)/g
const heading = /^### (\d+\.\d+) \S/gm

/** The text with the line breaks of its comments taken out, so that a citation may go over two lines. */
const unbroken = (text: string) => text.replace(/\n\s*(?:\*|\/\/|#)?\s+(?=\d)/g, ' ')

const files = new Map(
  [
    ...places.flatMap(place => readdirSync(join(checkout, place), { recursive: true, withFileTypes: true })),
    ...readdirSync(checkout, { withFileTypes: true })
  ]
    .filter(entry => entry.isFile() && !/\.(png|gz|bin)$/.test(entry.name))
    .map(entry => relative(checkout, join(entry.parentPath, entry.name)))
    .filter(path => path !== itself && (path.includes('/') || path.endsWith('.md')))
    .map(path => [path, readFileSync(join(checkout, path), 'utf8')] as const)
)
const rules = [...(files.get('docs/rules.md') ?? '').matchAll(heading)].map(([, number = '']) => number)

/** The numbers that a file cites, as they are written. */
function cited(text: string, pattern: RegExp): string[] {
  return [...unbroken(text).matchAll(pattern)].flatMap(
    ([, list, single]) => (list ?? single ?? '').match(/\d+(?:\.\d+)*/g) ?? []
  )
}

t.test('the numbers of docs/rules.md rise, each section from 1', t => {
  const parts = rules.map(number => number.split('.').map(Number) as [number, number])
  t.equal(parts[0]?.join('.'), '1.1')
  for (const [i, [section, rule]] of parts.entries()) {
    const [before, last] = parts[i - 1] ?? [0, 0]
    t.ok(section === before ? rule === last + 1 : section === before + 1 && rule === 1, `${section}.${rule}`)
  }
  t.end()
})

t.test('every citation leads to a rule', t => {
  const known = new Set(rules)
  const wrong: string[] = []
  for (const [path, text] of files) {
    const numbers = path === 'docs/rules.md' ? cited(text, reference) : cited(text, citation)
    for (const number of numbers) if (!known.has(number)) wrong.push(`${path}: rules ${number}`)
  }
  t.same(wrong, [])
  t.end()
})

t.test('nothing but rules is cited', t => {
  const wrong: string[] = []
  for (const [path, text] of files)
    for (const [found] of text.matchAll(
      /\bdecisions? \d[\d.]*|[(]contract[,;:)]|\bcontract[,:] ?(?:rule|case|")|\bcontract rule/gi
    ))
      wrong.push(`${path}: ${found}`)
  t.same(wrong, [])
  t.end()
})

t.test('every rule is cited by a test', t => {
  const seen = new Set(
    [...files].flatMap(([path, text]) => (path.startsWith('test/') ? cited(text, citation) : []))
  )
  t.same(
    rules.filter(number => !seen.has(number)),
    []
  )
  t.end()
})
