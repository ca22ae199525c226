import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Field } from '../../../lib/model/field.js'
import { storeOptions } from '../../../lib/model/model.js'
import { secretBoxOf } from '../../../lib/model/secrets.js'
import { kinds, objectTypes } from '../../../lib/model/types.js'
import { LoadError } from '../../../lib/store/errors.js'
import { Store } from '../../store/file-store.js'
import { settings } from '../../support/memory-cluster.js'
import { proof } from '../../support/proof.js'
import { populated } from '../../support/routes.js'

type Damage = readonly [what: string, damage: (file: string, bytes: Buffer) => void]

const put = (change: (bytes: Buffer) => Buffer | string) => (file: string, bytes: Buffer) =>
  writeFileSync(file, change(bytes), { mode: 0o600 })

/** What disks, programs and hands do to any file. */
const everywhere: readonly Damage[] = [
  ['empty', put(() => '')],
  ['cut in half', put(bytes => bytes.subarray(0, bytes.length / 2))],
  ['without its last byte', put(bytes => bytes.subarray(0, -1))],
  ['without its last but one byte', put(bytes => Buffer.concat([bytes.subarray(0, -2), bytes.subarray(-1)]))],
  ['zeros', put(bytes => Buffer.alloc(bytes.length))],
  ['no UTF-8', put(bytes => Buffer.concat([Buffer.from([0xff, 0xfe]), bytes]))],
  ['a bit flipped', put(bytes => flipped(bytes))],
  ['another program’s', put(() => 'PK\u0003\u0004 not ours\n')],
  ['a list', put(() => '[]\n')],
  ['null', put(() => 'null\n')],
  ['twice', put(bytes => Buffer.concat([bytes, bytes]))],
  ['a FIFO', file => replaced(file, () => execFileSync('mkfifo', [file]))],
  ['a directory', file => replaced(file, () => mkdirSync(file))],
  ['a device', file => replaced(file, () => execFileSync('ln', ['-s', '/dev/zero', file]))],
  ['a link that leads nowhere', file => replaced(file, () => execFileSync('ln', ['-s', 'nowhere', file]))]
]

function flipped(bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes)
  const middle = copy.length >> 1
  copy[middle] = (copy[middle] ?? 0) ^ 0x10
  return copy
}

function replaced(file: string, make: () => void): void {
  rmSync(file)
  make()
}

/** What a hand does to each field that the type's table has, and to the whole. */
function byHand(type: string): Damage[] {
  const { fields = [], hidden = [] } =
    (objectTypes as Record<string, { fields?: readonly Field[]; hidden?: readonly Field[] }>)[type] ?? {}
  const doc = (change: (doc: Record<string, unknown>) => unknown) =>
    put(bytes => `${JSON.stringify(change(JSON.parse(bytes.toString())), null, 2)}\n`)
  const values: readonly unknown[] = [
    5,
    -1.5,
    true,
    null,
    '',
    'a b\u0000',
    ['x'],
    { x: 1 },
    'x'.repeat(70_000),
    { encrypted: 'AAAA' }
  ]
  return [
    ['no name', doc(({ name: _, ...rest }) => rest)],
    ['another name', doc(doc => ({ ...doc, name: 'another' }))],
    ['a field that is none', doc(doc => ({ ...doc, surprise: 1 }))],
    ['a key twice', put(bytes => bytes.toString().replace('{', '{\n  "name": "x",'))],
    ...[...fields, ...hidden].flatMap(({ name }) =>
      values.map(
        (value): Damage => [
          `${name}: ${JSON.stringify(value).slice(0, 20)}`,
          doc(doc => ({ ...doc, [name]: value }))
        ]
      )
    )
  ]
}

/**
 * The error that a start throws for the objects of a state directory: the start itself takes too long for all
 * of them.
 */
async function inspected(state: string): Promise<Error | undefined> {
  try {
    const problems = await Store.inspect(storeOptions(state, settings, await secretBoxOf(state), '0.1.0'))
    return problems.length > 0 ? new LoadError(problems) : undefined
  } catch (error) {
    return error as Error
  }
}

// rules 11.2, 11.6
t.test('every file of the state, damaged in every way', { timeout: 1_800_000 }, async t => {
  const c = await populated(t)
  await c.post('/config/bmcsetup/boards', { username: 'root', password: 'calvin' })
  await c.post('/config/switch/leaf', { read: 'word', rw: 'other' })
  await c.get('/config/node/n1/_release')
  await c.post('/config/node/gone', {})
  await c.get('/config/node/gone/_delete')
  await c.post('/config/cluster', { ntp_server: 'ntp.example.org' })
  await c.idle()
  await c.daemon.close(1000)
  const state = join(c.directory, 'state')
  const sound = join(c.directory, 'sound')
  cpSync(state, sound, { recursive: true })
  const files = readdirSync(sound, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name).slice(sound.length + 1))
    .sort()
  t.ok(
    Object.keys(kinds).filter(type => files.some(file => file.startsWith(`${type}/`))).length >= 8,
    files.join()
  )
  const started = () =>
    c.restart().then(
      () => c.daemon.close(1000).then(() => undefined),
      (error: Error) => error
    )
  const wrong: string[] = []
  let tried = 0
  let refused = 0
  /** One of each kind is damaged in every way, the others in those that any file knows. */
  const seen = new Set<string>()
  for (const path of files) {
    const [type = ''] = path.split('/')
    rmSync(state, { recursive: true })
    cpSync(sound, state, { recursive: true })
    const damages = [...everywhere, ...(path.endsWith('.json') && !seen.has(type) ? byHand(type) : [])]
    seen.add(type)
    for (const [what, damage] of damages) {
      const file = join(state, path)
      // To inspect writes nothing: the one file is put back.
      const damaged = Object.hasOwn(kinds, type) ? path : ''
      rmSync(join(state, damaged), { recursive: true, force: true })
      cpSync(join(sound, damaged), join(state, damaged), { recursive: true })
      damage(file, readFileSync(file))
      tried++
      const from = performance.now()
      const error = Object.hasOwn(kinds, type) ? await inspected(state) : await started()
      const took = performance.now() - from
      if (took > 15_000) wrong.push(`${path}: ${what}: ${took} ms`)
      if (!error) continue
      refused++
      // The type of the error tells a refusal from a fault of the code; the message has to lead to the file.
      if (
        /^(Type|Range|Reference|Syntax)Error$/.test(error.name) ||
        !error.message.includes(path === 'secret.key' ? path : file)
      )
        wrong.push(`${path}: ${what}: ${error.stack?.slice(0, 300)}`)
    }
  }
  rmSync(state, { recursive: true })
  cpSync(sound, state, { recursive: true })
  const begun = performance.now()
  await c.restart()
  const backMs = Math.round(performance.now() - begun)
  t.equal((await c.get('/config/node/n1')).status, 200)
  proof('state files truncated, foreign or broken by hand', {
    ...{ tried, crashes: wrong.length, backMs },
    note: `${refused} starts refused, the file named`
  })
  t.comment(`${tried} damaged files of ${files.length}, ${refused} starts refused`)
  t.same(wrong, [])
})
