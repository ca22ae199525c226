// changelog.mjs VERSION DATE: joins the files below changelog/unreleased/ into a section of CHANGELOG.md and
// removes them. Without arguments it prints CHANGELOG.md with a section "Unreleased" and changes nothing.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const directory = join(root, 'changelog', 'unreleased')
const changelog = join(root, 'CHANGELOG.md')
const kinds = ['Added', 'Changed', 'Fixed', 'Security']
const firstLine = new RegExp(`^(${kinds.join('|')}): (\\S.*[.?!])$`)

function fail(message) {
  console.error(message)
  process.exit(1)
}

/** Reads one file; its lines become one point of a list. */
function entry(name) {
  const path = `changelog/unreleased/${name}`
  if (!/^[a-z0-9]+(-[a-z0-9]+)*\.md$/.test(name))
    fail(
      `${path}: a name has small letters, digits and hyphens, and ends in .md, such as dry-run-of-power.md`
    )
  const [first = '', ...rest] = readFileSync(join(directory, name), 'utf8').trim().split('\n')
  const [, kind, sentence] = firstLine.exec(first) ?? []
  if (kind === undefined)
    fail(
      `${path}: the first line must be "${kinds.join(':", "')}:" and a sentence, not ${JSON.stringify(first)}`
    )
  return {
    kind,
    text: [`- ${sentence}`, ...rest.filter(line => line !== '').map(line => `  ${line}`)].join('\n')
  }
}

function section(title, entries) {
  const lists = kinds.map(kind => ({
    kind,
    texts: entries.filter(one => one.kind === kind).map(one => one.text)
  }))
  const parts = lists
    .filter(({ texts }) => texts.length)
    .map(({ kind, texts }) => `### ${kind}\n\n${texts.join('\n')}`)
  return [`## ${title}`, ...parts].join('\n\n')
}

const [version, date, ...more] = process.argv.slice(2)
const release = version !== undefined
if (release && (!/^\d+\.\d+\.\d+$/.test(version) || !/^\d{4}-\d\d-\d\d$/.test(date ?? '') || more.length > 0))
  fail('usage: node build/changelog.mjs [VERSION DATE], such as 1.1.0 2026-12-01')

const files = readdirSync(directory)
  .filter(name => name !== 'README.md')
  .sort()
const entries = files.map(entry)
const text = readFileSync(changelog, 'utf8')
const at = text.indexOf('\n## [') + 1
if (at === 0) fail('CHANGELOG.md has no section "## [VERSION] - DATE" below which the new one could go')
if (release && text.includes(`\n## [${version}]`)) fail(`CHANGELOG.md has a section ${version} already`)
if (release && files.length === 0) fail('changelog/unreleased/ holds no file: there is nothing to release')

const title = release ? `[${version}] - ${date}` : '[Unreleased]'
const joined = `${text.slice(0, at)}${files.length ? `${section(title, entries)}\n\n` : ''}${text.slice(at)}`
if (release) {
  writeFileSync(changelog, joined)
  for (const name of files) rmSync(join(directory, name))
} else {
  process.stdout.write(joined)
}
