import { deepEqual, equal, match, ok } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { Controller, type Reply } from '../support/controller.js'
import {
  type Exported,
  everything,
  exported,
  objectFiles,
  parseBare,
  secretsOf,
  snapshot
} from '../support/snapshot.js'
import { beginning } from './properties/beginning.js'
import { brokenMoves, brokenRules, leftovers, orphans, wrongAnswers } from './properties/invariants.js'
import { newName, type Operation, operation, types } from './properties/operations.js'

/**
 * The numbers of runs are multiplied by this: `make test-long` asks for more. Each run of the tests has a
 * seed of its own.
 */
const rounds = Number(process.env.SVCD_PROPERTY_RUNS ?? 0.2)
/** A failure is repeated with the seed that it prints. */
const seed = Number(process.env.SVCD_PROPERTY_SEED ?? Date.now() % 2 ** 31)
t.comment(`seed ${seed}`)

const controllerAddress = '10.141.255.254'

/**
 * The stored files but the journals: what becomes of a machine's boot reaches them behind the answer of its
 * boot script.
 */
const storedFiles = (c: Controller) => ({
  ...snapshot(c),
  'node-status.journal': '',
  'node-boots.journal': '',
  'node-inventory.journal': ''
})

/** A step of a sequence: what was asked, and what is exported before and after it. */
interface Step {
  readonly operation: Operation
  readonly reply: Reply
  readonly before: Exported
  readonly after: Exported
}

/** Brings the controller to the beginning and runs a sequence of operations, each seen by `check`. */
async function perform(
  c: Controller,
  operations: readonly Operation[],
  check: (step: Step) => void = () => {}
): Promise<void> {
  const reset = await c.post('/config/cluster/import', beginning)
  equal(reset.status, 201, reset.text)
  const exports = [(await exported(c)).config]
  for (const operation of operations) {
    const before = exports.at(-1) as Exported
    const reply = await request(c, operation, exports)
    const after = (await exported(c)).config
    check({ operation, reply, before, after })
    exports.push(after)
  }
}

function request(c: Controller, operation: Operation, exports: readonly Exported[]): Promise<Reply> {
  if (operation.kind === 'import') {
    const config = exports[operation.of % exports.length] ?? {}
    const [dropped, name] = operation.without ?? []
    const kept = Object.entries(config)
      .filter(([section]) => operation.sections.includes(section))
      .map(([section, objects]) => {
        const rest = Object.entries(objects).filter(([key]) => section !== dropped || key !== name)
        return [section, Object.fromEntries(rest)]
      })
    return c.post('/config/cluster/import', { config: Object.fromEntries(kept) })
  }
  return operation.method === 'GET' ? c.get(operation.path) : c.post(operation.path, operation.body)
}

const sequence = (most: number) => fc.array(operation, { maxLength: most, size: 'max' })

/**
 * Runs the property on one controller; a failure prints the shortest sequence that was found, and its seed.
 */
function property(
  what: string,
  runs: number,
  length: number,
  holds: (c: Controller, operations: Operation[]) => Promise<void>
): void {
  t.test(what, async t => {
    const c = await Controller.start(t)
    for (const name of ['vmlinuz', 'compute.tar.gz']) c.file(name)
    const tested = fc.asyncProperty(sequence(length), operations => holds(c, operations))
    const asserted = fc.assert(tested, {
      seed,
      numRuns: Math.ceil(runs * rounds),
      includeErrorInReport: true
    })
    // The runner shows nothing of an error with a message this long.
    await asserted.catch(({ message }: Error) =>
      t.fail(message.slice(0, message.indexOf('\n')), { seed, report: message.slice(0, 20_000) })
    )
    t.same(
      c.log.filter(line => line.includes(' error ')),
      [],
      'nothing is logged as an error'
    )
  })
}

property('what is read and posted back changes no stored byte', 12, 40, async (c, operations) => {
  await perform(c, operations)
  const { config } = await exported(c)
  const before = storedFiles(c)
  const postBack = async (path: string, to = path) => {
    const read = await c.get(path)
    equal(read.status, 200, `${path}: ${read.text}`)
    const posted = await c.post(to, read.text)
    ok(posted.status === 200 || posted.status === 204, `${path}: ${posted.status} ${posted.text}`)
    deepEqual(storedFiles(c), before, path)
  }
  await postBack('/config/cluster')
  for (const type of types)
    for (const [name, doc] of Object.entries(config[type] ?? {})) {
      const path = `/config/${type}/${name}`
      await postBack(path)
      if (type !== 'node' && type !== 'group') continue
      await postBack(`${path}/interfaces`)
      for (const nic of doc.interfaces ?? [])
        await postBack(`${path}/interfaces/${nic.interface}`, `${path}/interfaces`)
      await postBack(`/config/secrets/${type}/${name}`)
      for (const secret of secretsOf(config, type, name))
        await postBack(`/config/secrets/${type}/${name}/${secret.name}`)
    }
})

property(
  'renamed, all is as it was but for the name; and back, every file is',
  8,
  40,
  async (c, operations) => {
    await perform(c, operations)
    const before = objectFiles(c)
    const answers = await everything(c)
    const { config } = await exported(c)
    const other = 'renamed-here'
    for (const type of types)
      for (const name of Object.keys(config[type] ?? {})) {
        const renamed = await c.post(`/config/${type}/${name}`, { [newName[type]]: other })
        match(String(renamed.status), /^20[04]$/, renamed.text)
        equal((await c.get(`/config/${type}/${name}`)).status, 404, `${type} ${name} is gone`)
        const { text } = await exported(c)
        deepEqual(parseBare(text.replaceAll(other, name)).config, config, `${type} ${name} renamed`)
        await c.post(`/config/${type}/${other}`, { [newName[type]]: name })
        deepEqual(objectFiles(c), before, `${type} ${name}`)
      }
    deepEqual(await everything(c), answers)
  }
)

const deletedNic = (operation: Operation) =>
  /^\/config\/node\/[^/]+\/interfaces\/([^/]+)\/_delete$/.exec('path' in operation ? operation.path : '')?.[1]

const importsPart = ({ kind, ...rest }: Operation) =>
  kind === 'import' &&
  'sections' in rest &&
  rest.sections.includes('group') !== rest.sections.includes('node')

/** Nothing but a node's group. */
const movesNode = (operation: Operation) =>
  'body' in operation &&
  /^{"config":{"node":{"[^"]*":{"group":[^}]*}}}}$/.test(JSON.stringify(operation.body))

property(
  'whatever is asked, the rules hold, and a restart changes no answer',
  15,
  60,
  async (c, operations) => {
    const deleted = new Set(beginning.config.node.n2.removed)
    let stored: ReturnType<typeof storedFiles> | undefined
    await perform(c, operations, ({ operation, reply: { status, text, body }, before, after }) => {
      ok(status < 500, `${status} ${text}`)
      const now = storedFiles(c)
      if (status >= 400) {
        match(String(body?.message), /\S/, text)
        deepEqual(after, before, text)
        if (stored) deepEqual(now, stored, text)
      } else if (movesNode(operation)) deepEqual(brokenMoves(before, after), [])
      stored = now
      const nic = deletedNic(operation)
      if (nic !== undefined && status === 204) deleted.add(nic)
    })
    deepEqual(orphans(c.state()), [])
    const first = await exported(c)
    deepEqual(brokenRules(first.config, controllerAddress, deleted), [])
    if (!operations.some(importsPart)) deepEqual(leftovers(first.config), [])
    deepEqual(await wrongAnswers(c, controllerAddress), [])

    const files = objectFiles(c)
    const imported = await c.post('/config/cluster/import', first.text)
    equal(imported.status, 201, imported.text)
    equal((await exported(c)).text, first.text, 'export, import, export')
    deepEqual(objectFiles(c), files, 'an import of what is there changes no file')

    const answers = await everything(c)
    for (const [path, answer] of answers) ok(!/^5/.test(answer), `${path}: ${answer}`)
    await c.restart()
    deepEqual(await everything(c), answers, 'after a restart')
  }
)
