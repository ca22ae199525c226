import { mkdirSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { TemplateError, Templates, type TemplatesOptions } from '../../lib/template/templates.js'

/** A directory of templates, and a clock that the test moves. */
function directory(t: Test, files: Record<string, string>, more: Partial<TemplatesOptions> = {}) {
  const path = t.testdir({})
  const write = (name: string, text: string): void => {
    mkdirSync(join(path, name, '..'), { recursive: true })
    writeFileSync(join(path, name), text)
  }
  for (const [name, text] of Object.entries(files)) write(name, text)
  const clock = { ms: 5000 }
  const templates = new Templates({ directory: path, now: () => clock.ms, ...more })
  return { path, write, clock, templates }
}

/** The error of a rendering that has to fail. */
function failure(t: Test, run: () => unknown): TemplateError {
  try {
    const result = run()
    t.fail('it did not fail', { result })
  } catch (error) {
    if (error instanceof TemplateError) return error
    t.fail('not a TemplateError', { error })
  }
  return new TemplateError('', 0, 0, '')
}

t.test('renders a file by its path, with the includes beside it', async t => {
  const { templates } = directory(t, {
    'boot/menu.cfg': '#!ipxe\n{% include "boot/part.cfg" %}\n',
    'boot/part.cfg': 'echo {{ node }}'
  })
  t.equal(templates.render('boot/menu.cfg', { node: 'node001' }), '#!ipxe\necho node001\n')
})

// rules 4.11
t.test('a change is seen without a restart, after a second of the clock', async t => {
  const { templates, write, clock } = directory(t, { a: 'one', b: '{% include "a" %}!' })
  t.equal(templates.render('b', {}), 'one!')

  write('a', 'second')
  clock.ms += 999
  t.equal(templates.render('b', {}), 'one!', 'the file was looked at less than a second ago')
  clock.ms += 1
  t.equal(templates.render('b', {}), 'second!', 'an included file too')
})

t.test('a change that keeps the size is seen by its time, one that keeps both by its inode', async t => {
  const { templates, write, clock, path } = directory(t, { a: 'one' })
  const { atime, mtime } = statSync(join(path, 'a'))
  t.equal(templates.render('a', {}), 'one')

  write('a', 'two')
  utimesSync(join(path, 'a'), atime, new Date(mtime.getTime() + 1000))
  clock.ms += 1000
  t.equal(templates.render('a', {}), 'two')

  write('new', 'six')
  utimesSync(join(path, 'new'), atime, new Date(mtime.getTime() + 1000))
  renameSync(join(path, 'new'), join(path, 'a'))
  clock.ms += 1000
  t.equal(templates.render('a', {}), 'six')
})

t.test('a file that looks the same is not read again', async t => {
  const { templates, clock, path } = directory(t, { a: 'one' })
  const then = new Date(1_700_000_000_000)
  utimesSync(join(path, 'a'), then, then)
  t.equal(templates.render('a', {}), 'one')

  writeFileSync(join(path, 'a'), 'two')
  utimesSync(join(path, 'a'), then, then)
  clock.ms += 1000
  t.equal(templates.render('a', {}), 'one', 'of the same time, size and inode')
})

// rules 4.11
t.test('a broken edit is an error with file, line and column, until it is repaired', async t => {
  const { templates, write, clock } = directory(t, {
    'boot/x.cfg': 'fine\n',
    main: '{% include "boot/x.cfg" %}'
  })
  t.equal(templates.render('main', {}), 'fine\n')

  write('boot/x.cfg', 'line one\nécho {% if %}\n')
  clock.ms += 1000
  for (const name of ['main', 'boot/x.cfg', 'main']) {
    const error = failure(t, () => templates.render(name, {}))
    t.match(error, { file: 'boot/x.cfg', line: 2, column: 12 })
    t.equal(error.message, `boot/x.cfg:2:12: ${error.reason}`)
  }

  write('boot/x.cfg', 'repaired\n')
  t.throws(() => templates.render('main', {}), TemplateError, 'not looked at yet')
  clock.ms += 1000
  t.equal(templates.render('main', {}), 'repaired\n')
})

t.test('a file that goes and comes back', async t => {
  const { templates, write, clock, path } = directory(t, { a: 'one' })
  t.equal(templates.render('a', {}), 'one')
  rmSync(join(path, 'a'))
  clock.ms += 1000
  t.match(
    failure(t, () => templates.render('a', {})),
    { file: 'a', line: 1, column: 1 }
  )
  write('a', 'two')
  clock.ms += 1000
  t.equal(templates.render('a', {}), 'two')
})

t.test('a missing include names the place that includes it', async t => {
  const { templates } = directory(t, { a: 'x\n  {% include "nosuch" %}' })
  const error = failure(t, () => templates.render('a', {}))
  t.match(error, { file: 'a', line: 2, column: 6 })
  t.match(error.reason, 'nosuch')
})

t.test('no name leads out of the directory', async t => {
  const { templates, path } = directory(t, {
    'in/a': '{% include name %}',
    'in/b': '{% include name ignore missing %}'
  })
  writeFileSync(join(path, 'secret'), 'SECRET')
  const inside = new Templates({ directory: join(path, 'in') })
  const names = [
    '../secret',
    'x/../../secret',
    `${path}/secret`,
    './../secret',
    '..',
    '.',
    '',
    '/',
    'a/',
    '..\\secret'
  ]
  for (const name of [...names, 'a\0', '../in/a', './a', '/a', 'a//b']) {
    t.throws(() => inside.render(name, {}), TemplateError, `render ${JSON.stringify(name)}`)
    t.throws(() => inside.render('a', { name }), TemplateError, `include ${JSON.stringify(name)}`)
    t.throws(
      () => inside.render('b', { name }),
      TemplateError,
      `and without ignoring it ${JSON.stringify(name)}`
    )
  }
  t.equal(inside.render('b', { name: 'nosuch' }), '')
  t.throws(() => templates.render('in', {}), TemplateError, 'a directory is no template')
})

t.test('a file that is not UTF-8 is an error; a byte order mark is kept as it is', async t => {
  const { templates, path } = directory(t, { bom: '\ufeffx' })
  writeFileSync(join(path, 'latin'), Buffer.from([0x61, 0xe9, 0x62]))
  t.match(
    failure(t, () => templates.render('latin', {})),
    { file: 'latin', line: 1, column: 1 }
  )
  t.equal(templates.render('bom', {}), '\ufeffx')
})

t.test('includes without end are an error, not a crash', async t => {
  const { templates } = directory(t, { a: '{% include "b" %}', b: '\n{% include "a" %}' })
  t.match(failure(t, () => templates.render('a', {})).reason, 'nested')
})

t.test('check reports every file that is wrong, with its first error', async t => {
  const { templates, path } = directory(t, {
    'boot/good.cfg': '{% include "part" %}{% include "nosuch" ignore missing %}{{ anything }}',
    'boot/bad.cfg': '\n\n  {% if x %}',
    'install/lost.sh': '{% include "nosuch" %}',
    'install/out.sh': '{% include "../x" %}',
    part: 'x',
    'a/b/c/deep': '{{',
    '.hidden.swp': '{{',
    'boot/bad.cfg~': '{{'
  })
  writeFileSync(join(path, 'latin'), Buffer.from([0xff]))
  const found = templates.check().map(error => `${error.file}:${error.line}:${error.column}`)
  t.strictSame(found, [
    'a/b/c/deep:1:1',
    'boot/bad.cfg:3:6',
    'install/lost.sh:1:4',
    'install/out.sh:1:4',
    'latin:1:1'
  ])
})

t.test('check of a good directory, of a linked file and of no directory', async t => {
  const { templates, path } = directory(t, { a: 'x' })
  t.strictSame(templates.check(), [])
  symlinkSync('nowhere', join(path, 'dangling'))
  t.match(templates.check(), [{ file: 'dangling' }])
  const none = new Templates({ directory: join(path, 'nosuch') })
  t.match(none.check(), [{ file: join(path, 'nosuch'), line: 1, column: 1 }])
})
