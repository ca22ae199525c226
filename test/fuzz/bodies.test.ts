import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { ApiRoute } from '../../lib/api/context.js'
import type { TypeName } from '../../lib/model/docs.js'
import { objectTypes, typeNames } from '../../lib/model/types.js'
import type { Controller } from '../support/controller.js'
import { proof } from '../support/proof.js'
import { bodyOf, complaints, existing, populated, table } from '../support/routes.js'
import { mutated } from './mutate.js'
import { fuzzSeed, Random } from './random.js'
import { fieldsOf, pool, valueFor } from './values.js'

// Bodies made from the field tables: no 5xx, nothing changed by what is refused, and what is stored can be
// read, exported and imported again.

const long = process.env.SVCD_LONG !== undefined
const bodies = Number(process.env.FUZZ_BODIES ?? (long ? 200_000 : 250))
/** So often the whole state is looked at. */
const every = long ? 5000 : 250
const random = new Random(fuzzSeed())
const again = `again with FUZZ_SEED=${random.seed}`

// What is tried here is no disk, and a disk would be most of the time.
if (existsSync('/dev/shm')) process.env.TMPDIR = '/dev/shm'
const c = await populated(t)
await c.post('/config/network/bmc', { network: '10.142.0.0/16' })
const beginning = (await c.get('/config/cluster/export')).text

// These run programs when they are let in, and have tests of their own.
const routes = table.filter(({ body, path }) => body === 'json' && !/_os(grab|push)$|\/kernel$/.test(path))

const names: Readonly<Record<string, readonly string[]>> = {
  group: ['compute', 'g2', 'constructor', '-x'],
  node: ['n1', 'n2', 'n10', 'constructor', 'N_1'],
  network: ['cluster', 'bmc', 'net3', '10.1.0.0'],
  osimage: ['compute', 'other', '__proto__'],
  bmcsetup: ['boards', 'b2'],
  switch: ['sw1', 'sw2'],
  otherdev: ['pdu', 'ups'],
  file: ['motd', 'f2'],
  filename: ['motd', 'f2'],
  secret: ['key', 'k2']
}

/** A path of a route, mostly with names that are there. */
const pathFor = (route: ApiRoute) =>
  route.path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(
      random.pick(random.is(0.6) ? [existing[name] ?? ''] : (names[name] ?? [existing[name] ?? '']))
    )
  )

/** The type and the name that a path is about. */
function ofPath(path: string): { type: TypeName; name: string } | undefined {
  const [, first = '', name = ''] = path.slice(1).split('/')
  const type = typeNames.find(known => known === first)
  return type && { type, name: decodeURIComponent(name) }
}

function bodyFor(route: ApiRoute, path: string): unknown {
  const about = route.path.startsWith('/config/secrets') ? undefined : ofPath(path)
  if (path === '/config/cluster/import') return importBody()
  if (route.path === '/config/dns/{network}' && random.is(0.7)) return [1, 2].map(recordBody)
  if (!about) return changed(bodyOf(route))
  const { fields, newName } = objectTypes[about.type]
  const object: Record<string, unknown> = fieldsOf(random, fields, random.is(0.7) ? 1 : 0.7)
  if (/_clone$/.test(path) || random.is(0.1)) object[newName[0]] = random.pick(names[about.type] ?? ['x'])
  if (/_renumber$/.test(path)) object.network = random.pick(['10.150.0.0/16', '10.141.0.0/16', '10.7.0.0/12'])
  if (random.is(0.15)) object.interfaces = random.pick(pool.filter(value => Array.isArray(value)))
  if (random.is(0.05))
    object[random.pick(['_override', '_x', 'nonsense', 'constructor', ''])] = random.pick(pool)
  return random.is(0.5) ? object : { config: { [about.type]: { [about.name]: object } } }
}

/** A DNS record, mostly one that is taken. */
const recordBody = () => ({
  host: random.is(0.9) ? random.pick(['www', 'ldap', 'db.lab', 'n1']) : random.pick(pool),
  ...(random.is(0.5)
    ? { ipaddress: '10.141.9.9' }
    : { alias: random.pick(['n2', 'ldap', 'mirror.example.org']) })
})

/** An export with a few values of it exchanged. */
function importBody(): unknown {
  const document = JSON.parse(beginning)
  for (let left = 1 + random.below(3); left > 0; left--) {
    const type = random.pick(typeNames)
    const objects = document.config[type]
    const name = random.pick(Object.keys(objects))
    const field = random.pick(objectTypes[type].fields)
    if (random.is(0.1)) delete objects[name]
    else if (objects[name]) objects[name][field.name] = valueFor(random, field, 0.7)
  }
  return document
}

/** A body with one of its values, at any depth, exchanged. */
function changed(body: unknown): unknown {
  if (typeof body !== 'object' || body === null || random.is(0.3)) return random.pick(pool)
  const copy: Record<string, unknown> | unknown[] = Array.isArray(body) ? [...body] : { ...body }
  const keys = Object.keys(copy)
  const key = keys.length === 0 || random.is(0.1) ? 'nonsense' : random.pick(keys)
  return Object.assign(copy, { [key]: changed((copy as Record<string, unknown>)[key]) })
}

/** A JSON text: mostly whole, sometimes damaged. */
function textFor(route: ApiRoute, path: string): string | Buffer {
  const text = JSON.stringify(bodyFor(route, path))
  return random.is(0.15) ? Buffer.from(mutated(random, text, [beginning]), 'latin1') : text
}

/** Every object that is there: stored objects never change, so the same one is an unchanged one. */
function objects(c: Controller): readonly unknown[] {
  const { view } = c.daemon.model
  return [...typeNames, 'secrets' as const, 'osimagetag' as const, 'cluster' as const].flatMap(type =>
    view.names(type).map(name => view.get(type, name))
  )
}

/** What no request may lead to. */
async function look(what: string): Promise<string[]> {
  const wrong: string[] = []
  for (const type of [...typeNames, 'secrets', 'osimagetag', 'cluster']) {
    const { status, body, text } = await c.get(`/config/${type}`)
    if (status !== 200 || body === undefined)
      wrong.push(`${what}: GET /config/${type}: ${status} ${text.slice(0, 300)}`)
  }
  const before = (await c.get('/config/cluster/export')).text
  const { status, text } = await c.post('/config/cluster/import', before)
  if (status !== 201) wrong.push(`${what}: import of its own export: ${status} ${text.slice(0, 300)}`)
  if ((await c.get('/config/cluster/export')).text !== before)
    wrong.push(`${what}: another export after the import`)
  wrong.push(...complaints(c).filter(line => !/ warn |^<4>/.test(line)))
  c.log.length = 0
  return wrong
}

// rules 1.5, 1.7, 1.8
t.test('bodies that were once found', async t => {
  const directory = join(import.meta.dirname, 'corpus/bodies')
  const small = readdirSync(directory).map(name => {
    const { path, body, status } = JSON.parse(readFileSync(join(directory, name), 'utf8'))
    return [name, path, body, status] as const
  })
  const interfaces = Array.from({ length: 300 }, (_, n) => ({ interface: `eth${n}`, network: 'cluster' }))
  const large = [
    ['long base64', '/config/group/compute', { prescript: 'A'.repeat(2_000_000) }, 204],
    ['long base64 that is none', '/config/group/compute', { prescript: 'A'.repeat(2_000_001) }, 400],
    ['long OID', '/config/switch/sw1', { oid: '.1'.repeat(100_000) }, 400],
    ['deep', '/config/group/compute', `{"comment":${'['.repeat(60_000)}`, 400],
    ['many interfaces', '/config/group/compute', { interfaces }, 204]
  ] as const
  for (const [name, path, body, status] of [...small, ...large]) {
    const before = objects(c)
    const answer = await c.post(path, body)
    t.equal(answer.status, status, `${name}: ${answer.text.slice(0, 200)}`)
    if (answer.status >= 400) t.same(objects(c).length, before.length, name)
  }
  t.same(await look('after the corpus'), [])
  t.equal((await c.post('/config/cluster/import', beginning)).status, 201)
})

// rules 1.5, 1.7, 1.8, 2.4, 2.7, 3.11
t.test('bodies of any kind', async t => {
  const wrong: string[] = []
  const counts = new Map<number, number>()
  let early = 0
  let unmeant5xx = 0
  let halfDone = 0
  let i = 0
  for (; i < bodies && wrong.length < 5; i++) {
    const route = random.pick(routes)
    const path = pathFor(route)
    const body = textFor(route, path)
    const before = objects(c)
    const { status, text } = await c.post(path, body, { source: `127.0.${i % 200}.1` })
    counts.set(status, (counts.get(status) ?? 0) + 1)
    const what = `POST ${path} ${String(body).slice(0, 2000)}: ${status} ${text.slice(0, 300)}`
    // There is no tree to copy, no registry and no virtual machine.
    const needsMore = /(?:\/osimage\/\{osimage\}\/_(?:clone|import|update|push)|\/_rehearse)$/.test(
      route.path
    )
    const isMeant = status === 503 && needsMore
    if (status >= 500 && !isMeant) {
      unmeant5xx++
      wrong.push(what)
    }
    if (status >= 400) {
      const after = objects(c)
      if (after.length !== before.length || after.some((object, at) => object !== before[at])) {
        halfDone++
        wrong.push(`refused, and it changed something: ${what}`)
      }
    }
    if (i % every === every - 1) {
      wrong.push(...(await look(`after ${i}`)))
      const reset = await c.post('/config/cluster/import', beginning)
      if (reset.status !== 201) wrong.push(`back to the beginning: ${reset.status} ${reset.text}`)
      early ||= process.memoryUsage().rss
    }
  }
  const answers = [...counts].sort().map(([status, count]) => `${status}: ${count}`)
  const memoryMb = (process.memoryUsage().rss - early) / 2 ** 20
  proof('bodies from the field tables', {
    tried: i,
    unmeant5xx,
    halfDone,
    memoryMb,
    note: `seed ${random.seed}, answers ${answers.join(', ')}`
  })
  t.same(wrong, [], again)
  const taken = [200, 201, 204].reduce((sum, status) => sum + (counts.get(status) ?? 0), 0)
  t.ok(taken > i / 10, `many are taken: ${answers.join(', ')}; ${again}`)
  if (long) t.ok(memoryMb < 200, `memory rose by ${memoryMb.toFixed()} MB; ${again}`)
})
