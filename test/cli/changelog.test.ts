import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { checkout } from '../support/programs.js'

const released = '# Changelog\n\nIntro.\n\n## [1.0.0] - 2026-11-23\n\nFirst version.\n'
const run = (root: string, ...args: string[]) =>
  start(process.execPath, [join(root, 'build', 'changelog.mjs'), ...args], { input: '' }).ended

/** A scratch copy with the script, a change log of one release and these files. */
function copy(root: string, files: Record<string, string>): (name: string) => string {
  const unreleased = join(root, 'changelog', 'unreleased')
  mkdirSync(unreleased, { recursive: true })
  cpSync(join(checkout, 'build', 'changelog.mjs'), join(root, 'build', 'changelog.mjs'))
  writeFileSync(join(root, 'CHANGELOG.md'), released)
  writeFileSync(join(unreleased, 'README.md'), 'how to\n')
  for (const [name, text] of Object.entries(files)) writeFileSync(join(unreleased, name), text)
  return name => readFileSync(join(root, name), 'utf8')
}

const files = {
  'b-fault.md': 'Fixed: A clock voided tokens.\n\nIt is compared\nwith the start.\n',
  'a-fault.md': 'Fixed: A name was lost.\n',
  'thing.md': 'Added: A thing.\n\nIt helps.\n\nThose who upgrade type nothing.\n'
}
const section = [
  '### Added\n\n- A thing.\n  It helps.\n  Those who upgrade type nothing.\n',
  '### Fixed\n\n- A name was lost.\n- A clock voided tokens.\n  It is compared\n  with the start.\n\n'
].join('\n')
const above = (title: string) => released.replace('## [1.0.0]', `## ${title}\n\n${section}## [1.0.0]`)

t.test('a release joins the files into a section above the last one, and removes them', async t => {
  const root = t.testdir()
  const read = copy(root, files)
  const { code, stderr } = await run(root, '1.1.0', '2026-12-01')
  t.equal(code, 0, stderr)
  const text = read('CHANGELOG.md')
  t.equal(text, above('[1.1.0] - 2026-12-01'))
  t.same(readdirSync(join(root, 'changelog/unreleased')), ['README.md'])
  t.match(await run(root, '1.2.0', '2026-12-02'), { code: 1, stderr: /holds no file/ })
  t.equal(read('CHANGELOG.md'), text)
})

t.test('without arguments it prints the change log and changes nothing', async t => {
  const root = t.testdir()
  const read = copy(root, files)
  t.match(await run(root), {
    code: 0,
    stdout: above('[Unreleased]')
  })
  t.equal(read('CHANGELOG.md'), released)
  t.ok(existsSync(join(root, 'changelog/unreleased/thing.md')))
})

t.test('a file with a wrong first line or name is refused by name, and nothing is changed', async t => {
  for (const [name, text] of [
    ['wrong.md', 'Improved: A thing.\n'],
    ['wrong.md', 'Fixed: no full stop\n'],
    ['wrong.md', ''],
    ['Wrong name.md', 'Fixed: A thing.\n']
  ] as const) {
    const root = t.testdir()
    const read = copy(root, { ...files, [name]: text })
    const { code, stderr } = await run(root, '1.1.0', '2026-12-01')
    t.equal(code, 1, text)
    t.ok(stderr.startsWith(`changelog/unreleased/${name}: `), stderr)
    t.equal(read('CHANGELOG.md'), released)
    t.ok(existsSync(join(root, 'changelog/unreleased/thing.md')))
  }
  t.match(await run(t.testdir(copied()), '1.1'), { code: 1, stderr: /^usage: / })
  t.match(await run(t.testdir(copied()), '1.0.0', '2026-12-01'), {
    code: 1,
    stderr: /has a section 1\.0\.0 already/
  })
})

const copied = () => ({
  build: { 'changelog.mjs': readFileSync(join(checkout, 'build', 'changelog.mjs'), 'utf8') },
  changelog: { unreleased: { 'thing.md': files['thing.md'] } },
  'CHANGELOG.md': released
})

t.test('the files of this checkout can be joined', async t => {
  const { code, stdout, stderr } = await run(checkout)
  t.equal(code, 0, stderr)
  const count = readdirSync(join(checkout, 'changelog/unreleased')).length - 1
  const unreleased = /\n## \[Unreleased\]\n(.*?)\n## \[/s.exec(stdout)?.[1] ?? ''
  t.equal((unreleased.match(/^- /gm) ?? []).length, count)
})
