import { execFile } from 'node:child_process'
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { buildSync } from 'esbuild'
import t from 'tap'
import type { Controller } from './support/controller.js'
import { checkout } from './support/programs.js'

const architecture = readFileSync(join(checkout, 'docs', 'architecture.md'), 'utf8')

/**
 * A change of one file: `before` stands there once, and `after` comes in its place; '' before: a new file.
 */
interface Edit {
  readonly file: string
  readonly before: string
  readonly after: string
}

/** The edits in the block of a recipe: files after `---` and `+++`, lines that stay, go and come. */
function editsOf(recipe: string): Edit[] {
  const [, section = ''] = architecture.split(`\n### ${recipe}\n`)
  const block = /\n```diff\n([\s\S]*?)\n```\n/.exec(section.split('\n### ', 1)[0] as string)?.[1] ?? ''
  return block.split(/^(?=(?:---|\+\+\+) )/m).map(text => {
    const [head = '', ...lines] = text.replace(/\n$/, '').split('\n')
    const only = (signs: string) =>
      lines.filter(line => signs.includes(line[0] ?? ' ')).map(line => line.slice(1))
    const before = head.startsWith('+++') ? '' : `${only(' -').join('\n')}\n`
    return { file: head.slice(4), before, after: `${only(' +').join('\n')}\n` }
  })
}

function apply(directory: string, { file, before, after }: Edit): void {
  const path = join(directory, file)
  if (before === '' && existsSync(path)) throw new Error(`${file} is there already`)
  const text = before === '' ? '' : readFileSync(path, 'utf8')
  const parts = before === '' ? ['', ''] : text.split(before)
  if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${before}`)
  writeFileSync(path, parts.join(after))
}

/** A copy of the project. */
const directory = t.testdir()
for (const part of ['lib', 'etc', 'templates', 'test/support', 'package.json', 'tsconfig.json'])
  cpSync(join(checkout, part), join(directory, part), { recursive: true })

/** Carries out a recipe on the copy. */
function follow(recipe: string, mostFiles: number): void {
  const edits = editsOf(recipe)
  const files = [...new Set(edits.map(({ file }) => file))].filter(file => file.startsWith('lib/'))
  t.comment(`${recipe}: ${files.join(', ')}`)
  t.ok(files.length > 0 && files.length <= mostFiles, `${files.length} files of lib, at most ${mostFiles}`)
  for (const edit of edits) apply(directory, edit)
}

// One after another on the same copy: what they add stands side by side, and the compiler runs once.
follow('A field', 1)
follow('A type', 3)
follow('A type with an address', 6)

// The copy is compiled once, so a record for the next time would be work for nothing.
const config = {
  extends: './tsconfig.json',
  compilerOptions: { incremental: false, tsBuildInfoFile: null },
  include: ['lib']
}
writeFileSync(join(directory, 'tsconfig.lib.json'), JSON.stringify(config))
const run = promisify(execFile)
const tsc = join(checkout, 'node_modules', 'typescript', 'bin', 'tsc')
const complaints = await run(process.execPath, [tsc, '-p', join(directory, 'tsconfig.lib.json')]).then(
  () => '',
  error => error.stdout
)
t.equal(complaints, '', 'it compiles')

// Each module becomes JavaScript beside its source, as test/compile.mjs would translate it, without what that
// makes besides: the tests, the programs, and tap as one file.
const sources = ['lib', 'test'].flatMap(part =>
  readdirSync(join(directory, part), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts'))
    .map(name => join(directory, part, name))
)
buildSync({ entryPoints: sources, outbase: directory, outdir: directory, format: 'esm', target: 'es2022' })
const support = await import(join(directory, 'test', 'support', 'controller.js'))
const start: typeof Controller.start = t => support.Controller.start(t)

t.test('a field', async t => {
  const c = await start(t)
  t.equal((await c.post('/config/otherdev/pdu', { shelf: 7 })).status, 201)
  t.equal((await c.get('/config/otherdev/pdu')).body.config.otherdev.pdu.shelf, 7)
  const wrong = await c.post('/config/otherdev/pdu', { shelf: 61 })
  t.equal(wrong.status, 400)
  t.equal(wrong.body.message, 'other device pdu: field "shelf" must be an integer from 1 to 60, not 61')
  await c.restart()
  const { body } = await c.get('/config/cluster/export')
  t.same(body.config.otherdev, { pdu: { name: 'pdu', shelf: 7 } })
  const document = (await c.get('/openapi.json')).body
  t.match(document.components.schemas.otherdev.properties.shelf, { type: ['integer', 'null'] })
})

t.test('a type', async t => {
  const c = await start(t)
  t.equal((await c.post('/config/rack/a1', { room: 'north' })).status, 201)
  t.same((await c.get('/config/rack/a1')).body, {
    config: { rack: { a1: { name: 'a1', room: 'north', comment: null } } }
  })
  t.equal((await c.post('/config/rack/a1/_clone', { newrackname: 'a2' })).status, 201)
  t.equal((await c.post('/config/rack/a1', { newrackname: 'b1' })).status, 204)
  t.equal((await c.get('/config/rack/a2/_delete')).status, 204)
  t.equal((await c.post('/config/rack/b1', { color: 'red' })).status, 400)
  await c.restart()
  const { body } = await c.get('/config/cluster/export')
  t.same(body.config.rack, { b1: { name: 'b1', room: 'north' } })
  t.equal((await c.post('/config/cluster/import', { rack: {} })).status, 201)
  t.same((await c.get('/config/rack')).body, { config: { rack: {} } })
})

t.test('a type with an address', async t => {
  const c = await start(t)
  await c.post('/config/network/n', { network: '10.1.0.0/24' })
  t.equal((await c.post('/config/camera/door', { network: 'n', ipaddress: '10.1.0.1' })).status, 201)
  t.equal((await c.post('/config/camera/door/_clone', { newcameraname: 'roof' })).status, 201)
  t.equal((await c.get('/config/camera/roof')).body.config.camera.roof.ipaddress, '10.1.0.2')
  t.same((await c.get('/config/network/n/_list')).body.taken, [
    { ipaddress: '10.1.0.1', device: 'door' },
    { ipaddress: '10.1.0.2', device: 'roof' }
  ])
  const taken = await c.post('/config/otherdev/pdu', { network: 'n', ipaddress: '10.1.0.1' })
  t.equal(taken.body.message, 'other device pdu: 10.1.0.1 belongs to camera door')
  const used = await c.get('/config/network/n/_delete')
  t.equal(used.body.message, 'network n is in use by 2: camera door, camera roof')
})
