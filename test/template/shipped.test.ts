import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { compileTemplate } from '../../lib/template/compiler.js'
import type { Template } from '../../lib/template/template.js'
import { Templates } from '../../lib/template/templates.js'
import { Reference } from './reference.js'
import { CASES } from './shipped-cases.js'

const directory = fileURLToPath(new URL('../../templates/', import.meta.url))

/** Every shipped template, name → source. */
const files: Readonly<Record<string, string>> = Object.fromEntries(
  ['boot', 'install', 'dhcp', 'dns', 'tftp', 'consoles'].flatMap(folder =>
    readdirSync(directory + folder, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => `${entry.parentPath}/${entry.name}`.slice(directory.length))
      .map(name => [name, readFileSync(directory + name, 'utf8')])
  )
)

const reference = await Reference.start()
t.teardown(() => reference.stop())

t.test('every shipped template, in every case, gives the same bytes as jinja2', async t => {
  const templates = new Templates({ directory })
  for (const { template, what, data } of CASES) {
    const theirs = await reference.render(files, template, data)
    t.strictSame({ text: templates.render(template, { ...data }) }, theirs, `${template}: ${what}`)
  }
})

// One such character makes V8 keep a whole script with two bytes for each character, and recode it to be sent.
t.test('shipped templates are ASCII', async t => {
  for (const [name, source] of Object.entries(files)) t.notMatch(source, /[^\0-\x7f]/, name)
})

const BRANCH = /\{%-? *(?:if|elif|else|for)\b.*?%\}/g
const mark = (file: string, at: number) => `«${file}:${at}»`

const compiled = new Map<string, Template>()

/** A template with a mark after each branch, compiled once. */
function marked(name: string): Template | undefined {
  const source = files[name]?.replace(BRANCH, (tag, at: number) => tag + mark(name, at))
  if (source !== undefined && !compiled.has(name)) compiled.set(name, compileTemplate(source, name, marked))
  return compiled.get(name)
}

/** Renders with a mark after each branch, which tells that it was taken. */
function branchesTaken(name: string, data: object): Set<string> {
  return new Set(
    marked(name)
      ?.render({ ...data })
      .match(/«.*?»/g)
  )
}

t.test('the cases take every branch of every template, and leave every branch out', async t => {
  const rendered = new Set<string>()
  const visit = (name: string) => {
    rendered.add(name)
    for (const [, included = ''] of files[name]?.matchAll(/\{%-? *include '([^']+)'/g) ?? []) visit(included)
  }
  for (const { template } of CASES) visit(template)
  t.strictSame(
    Object.keys(files).filter(name => !rendered.has(name)),
    [],
    'every template is rendered'
  )
  const taken = CASES.map(({ template, data }) => branchesTaken(template, data))
  for (const [file, source] of Object.entries(files))
    for (const { 0: tag, index = 0 } of source.matchAll(BRANCH)) {
      const where = `${file}, line ${source.slice(0, index).split('\n').length}: ${tag}`
      const branch = mark(file, index)
      t.ok(
        taken.some(branches => branches.has(branch)),
        `taken: ${where}`
      )
      // Where the file itself is part of it: an include that is left out leaves its branches out too.
      t.ok(
        taken.some(branches => !branches.has(branch)),
        `left out: ${where}`
      )
    }
})
