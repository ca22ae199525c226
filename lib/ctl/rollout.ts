import { setTimeout as sleep } from 'node:timers/promises'
import { isObject, type JsonObject, objectsIn, within } from '../base/json.js'
import { addTo } from '../base/lists.js'
import { isBmc } from '../model/cluster-index.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { fold } from '../node-set/hostlist.js'
import { askBmcs } from './bmc-action.js'
import { bootsWell } from './rehearsal.js'
import { installFields, nodesWith, willInstall } from './rescue.js'
import { type Options, pathOf, type Session, splitUnion, type Verb } from './session.js'
import { clean, Failure, namesNone, refused, wrongUsage } from './terminal.js'

/** The tag or image that nodes get, and the way to it. */
interface Plan {
  readonly fields: Readonly<Record<string, string>>
  /** Returns how many nodes of so many are restarted at a time. */
  readonly batch: (nodes: number) => number
  readonly mostFailed: number
  readonly minutes: number
  readonly restart: string
  readonly command: string
}

/** A node as the controller sees it: `isNew` if it runs what it would get now. */
interface Seen {
  readonly name: string
  readonly node: JsonObject
  readonly isNew: boolean
  readonly state: string
  readonly since: string
}

const hasFailed = ({ state }: Seen) => /^(?:installer\.failed|running\.degraded)/.test(state)

const restarts = ['boot', 'cycle', 'reset', 'none']
const pauseMs = { first: 200, most: 5000 }

/** Brings nodes to another pack, batch by batch. It keeps no state: nodes that run the pack are left out. */
export const rollout: Verb<''> = {
  operands: 'GROUP|SET',
  summary: 'restart nodes with another tag or image, some at a time, until some fail; again to go on',
  options: ['tag', 'image', 'batch', 'rehearse', 'until-failed', 'wait', 'restart', 'dryrun', 'yes'],
  async run(session, _type, [given = '']) {
    const { controller, options } = session
    const plan = planOf(given, options)
    const isGroup = () => controller.json('GET', pathOf('group', given), { fields: 'name' })
    // The next request tells what else is wrong.
    const set = isNodeSet(given) || !(await isGroup().catch(() => false)) ? given : `@${given}`
    const all = await look(session, set, ',bmcsetupname,interfaces')
    if (all.length === 0) throw namesNone(given)
    const left = all.filter(one => !isThere(one, plan))
    if (left.length === 0) return session.lines([`all ${all.length} nodes run it already`])
    const onDisk = left.filter(({ node }) => node.netboot === false)
    if (onDisk.length > 0)
      throw refused(
        `${foldOf(onDisk)} would boot from the disk: leave them out, or type svcctl node reinstall ` +
          `'${foldOf(onDisk)}' first; nothing was changed`
      )
    const written = left.filter(({ node }) => willInstall(node)).length
    const size = plan.batch(all.length)
    const what =
      `${assigned(plan.fields)} on ${left.length} of ${all.length} nodes, ${size} at a time` +
      `${written > 0 ? `, which writes to the disks of ${written}` : ''}: ${foldOf(left)}`
    await check(session, left, plan)
    if (options.dryrun) return session.lines([clean(`dry run, nothing was changed: ${what}`)])
    await session.confirm(`Roll out ${what}?`, 'nothing was changed')
    const [{ name: first = '' } = {}] = left
    if (options.rehearse) await rehearse(session, first, plan.fields)
    const run = new Rollout(session, plan)
    await run.all(left, size).finally(() => run.ways())
  }
}

function planOf(set: string, options: Options): Plan {
  const { tag, image, batch = '10%', wait = '30', restart = 'boot' } = options
  if (tag === undefined && image === undefined)
    throw wrongUsage('say what is rolled out: --tag TAG, --image IMAGE or both')
  const [, amount = '', percent] = /^(\d+)(%?)$/.exec(batch) ?? []
  if (Number(amount) < 1 || (percent && Number(amount) > 100))
    throw wrongUsage('--batch takes a number of nodes, or 1% to 100%')
  const above0 = (name: string, text: string) => {
    if (/^\d{1,6}(?:\.\d+)?$/.test(text) && Number(text) > 0) return Number(text)
    throw wrongUsage(`--${name} takes a number above 0, not ${text}`)
  }
  if (!restarts.includes(restart)) throw wrongUsage(`--restart takes ${restarts.join(', ')}, not ${restart}`)
  const named = ['tag', 'image', 'batch', 'until-failed', 'wait', 'restart'] as const
  const words = named.flatMap(name => (options[name] === undefined ? [] : [`--${name} ${options[name]}`]))
  return {
    // An image on its own is what is packed of it now.
    fields: { ...(image === undefined ? {} : { osimage: image }), osimagetag: tag ?? 'default' },
    batch: nodes => (percent ? Math.ceil((nodes * Number(amount)) / 100) : Number(amount)),
    mostFailed: above0('until-failed', options['until-failed'] ?? '1'),
    minutes: above0('wait', wait),
    restart,
    command: `svcctl rollout '${set}' ${words.join(' ')}`
  }
}

const foldOf = (nodes: readonly Seen[]) => fold(nodes.map(({ name }) => name))

const assigned = (fields: Readonly<Record<string, string>>) =>
  Object.entries(fields)
    .map(([field, value]) => `${field}=${value}`)
    .join(' ')

const isThere = ({ node, isNew, state }: Seen, { fields }: Plan) =>
  isNew && state === 'running' && Object.entries(fields).every(([field, value]) => node[field] === value)

/** Reads nodes, what they run, and their states; `more`: further fields of theirs. */
async function look(session: Session, set: string, more = ''): Promise<Seen[]> {
  const keys = `osimage,osimagetag,_running,_stale,_osimage_source,_osimagetag_source,${installFields}${more}`
  const all = new Map<string, Seen>()
  for (const nodes of splitUnion(set)) {
    const told = await session.controller.json('GET', '/monitor/node', { nodes })
    const states = within(told, 'monitor', 'status')
    for (const node of await nodesWith(session, nodes, keys)) {
      const name = String(node.name)
      const { state, since } = within(states[name])
      const isNew = isObject(node._running) && node._stale === null
      all.set(name, { name, node, isNew, state: String(state ?? ''), since: String(since ?? '') })
    }
  }
  return [...all.values()]
}

/** Throws Failure if the nodes cannot get the fields or be restarted, or the image was never packed. */
async function check(session: Session, nodes: readonly Seen[], { fields, restart }: Plan): Promise<void> {
  const { controller } = session
  const without = restart === 'none' ? [] : await withoutBmc(session, nodes)
  if (without.length > 0)
    throw refused(
      clean(
        `${foldOf(without)}: no BMC can restart them (interface BMC with an address, bmcsetupname with ` +
          'username and password): leave them out, or restart them yourself with --restart none; ' +
          'nothing was changed'
      )
    )
  await controller.json('POST', '/config/node/_set', { dryrun: 'yes' }, { nodes: foldOf(nodes), fields })
  const { osimage: name } = fields
  if (name === undefined || fields.osimagetag !== 'default') return
  const image = within(await controller.json('GET', pathOf('osimage', name)), 'config', 'osimage', name)
  if (!image.imagefile || !image.kernelfile)
    throw refused(clean(`OS image ${name} is not packed: svcctl osimage pack ${name}; nothing was changed`))
}

/** Returns the nodes that no BMC can restart, as svcd has no address or no login for it. */
async function withoutBmc({ controller }: Session, nodes: readonly Seen[]): Promise<Seen[]> {
  const isNamed = nodes.some(({ node }) => node.bmcsetupname)
  const answer = isNamed ? await controller.json('GET', '/config/bmcsetup') : {}
  const setups = within(answer, 'config', 'bmcsetup')
  return nodes.filter(({ node: { bmcsetupname, interfaces } }) => {
    const hasAddress = objectsIn(interfaces).some(
      one => isBmc({ interface: String(one.interface) }) && one.ipaddress
    )
    const { username, password } = within(setups, String(bmcsetupname))
    return !hasAddress || !username || !password
  })
}

/** Throws Failure unless a node boots well in a virtual machine with what is rolled out. */
async function rehearse(session: Session, node: string, fields: JsonObject): Promise<void> {
  const about = `the rehearsal of ${node}`
  const isWell = await bootsWell(session, node, fields).catch((error: Failure) => {
    throw new Failure(error.code, clean(`${about}: ${error.message}; nothing was changed`))
  })
  if (!isWell) throw refused(clean(`${about}: not well; nothing was changed`))
}

class Rollout {
  readonly #failed = new Map<string, string>()
  /** The nodes that were changed, by what sets them back. */
  readonly #changed = new Map<string, string[]>()
  /** The nodes that had the fields already: what they had before, only an earlier run knew. */
  readonly #had: string[] = []
  readonly #stop = new AbortController()
  #isOver = false

  constructor(
    readonly session: Session,
    readonly plan: Plan
  ) {}

  /** Throws Failure 1 if a node failed or when interrupted, never between a change and its restart. */
  async all(nodes: readonly Seen[], size: number): Promise<void> {
    const { mostFailed } = this.plan
    const interrupt = () => this.#stop.abort()
    process.once('SIGINT', interrupt)
    try {
      for (
        let i = 0;
        i < nodes.length && this.#failed.size < mostFailed && !this.#stop.signal.aborted;
        i += size
      )
        await this.#batch(nodes.slice(i, i + size), `${i / size + 1} of ${Math.ceil(nodes.length / size)}`)
    } finally {
      process.off('SIGINT', interrupt)
    }
    if (this.#stop.signal.aborted) throw refused('interrupted: nodes of the last batch may still boot')
    if (this.#failed.size > 0) throw refused(`failed: ${clean(fold([...this.#failed.keys()]))}`)
    this.#isOver = true
    await this.session.lines([`all ${nodes.length} nodes run it`])
  }

  /** Says what to type to go on, and to go back. */
  ways(): Promise<void> {
    const back = [...this.#changed].flatMap(([words, names]) => [
      `  svcctl node set '${fold(names)}' ${words}`,
      `  svcctl node power '${fold(names)}' boot`
    ])
    if (this.#had.length > 0) back.push(`  ${fold(this.#had)}: the run before printed the way back`)
    const on = this.#isOver ? [] : ['to go on:', `  ${this.plan.command}`]
    return this.session.lines([...on, ...(back.length > 0 ? ['to go back:', ...back] : [])].map(clean))
  }

  async #batch(nodes: readonly Seen[], which: string): Promise<void> {
    const { session, plan } = this
    const names = foldOf(nodes)
    await session.lines([clean(`batch ${which}: ${names}`)])
    await session.controller.json('POST', '/config/node/_set', {}, { nodes: names, fields: plan.fields })
    session.showWarnings()
    for (const { name, node } of nodes) {
      const own = (field: string) => (node[`_${field}_source`] === 'node' ? String(node[field]) : '')
      const words = assigned(Object.fromEntries(Object.keys(plan.fields).map(field => [field, own(field)])))
      if (words === assigned(plan.fields)) this.#had.push(name)
      else addTo(this.#changed, words, name)
    }
    const old = (await look(session, names)).filter(one => !one.isNew || hasFailed(one))
    const waiting = new Set(nodes.map(({ name }) => name))
    const fail = (name: string, why: string) => waiting.delete(name) && this.#fail(name, why)
    if (old.length > 0 && plan.restart !== 'none') {
      const { outcomes } = await askBmcs(session, 'power', foldOf(old), plan.restart)
      for (const [name, { failed, message }] of outcomes) if (failed) await fail(name, message)
    } else if (old.length > 0) await session.lines([clean(`restart them now: ${foldOf(old)}`)])
    await this.#await(waiting, new Map(old.map(({ name, since }) => [name, since])), fail)
    const well = nodes.filter(({ name }) => !waiting.has(name) && !this.#failed.has(name))
    await session.lines([`${well.length} of ${nodes.length} run it`])
  }

  /** Waits until each node runs it or has failed. `before`: since when nodes were in their old state. */
  async #await(
    waiting: Set<string>,
    before: ReadonlyMap<string, string>,
    fail: (name: string, why: string) => unknown
  ): Promise<void> {
    const { session, plan } = this
    const endMs = performance.now() + plan.minutes * 60_000
    for (let ms = pauseMs.first; waiting.size > 0; ms = Math.min(ms * 1.5, pauseMs.most)) {
      const seen = await look(session, fold([...waiting])).catch((error: unknown) => {
        // The controller may be starting again.
        if (error instanceof Failure && error.code === 3 && performance.now() < endMs) return []
        throw error
      })
      for (const one of seen) {
        if (isThere(one, plan)) waiting.delete(one.name)
        else if (hasFailed(one) && before.get(one.name) !== one.since) await fail(one.name, one.state)
      }
      if (waiting.size === 0 || this.#failed.size >= plan.mostFailed || this.#stop.signal.aborted) return
      if (performance.now() > endMs)
        for (const name of waiting) await fail(name, `it does not run it after ${plan.minutes} minutes`)
      await sleep(ms, undefined, { signal: this.#stop.signal }).catch(() => {})
    }
  }

  async #fail(name: string, why: string): Promise<void> {
    this.#failed.set(name, why)
    const path = `/monitor/node/${encodeURIComponent(name)}/_why`
    const told = await this.session.controller.json('GET', path).catch(() => ({}))
    const { verdict } = within(told, 'monitor', 'why', name)
    const more = typeof verdict === 'string' ? `; ${verdict}` : ''
    await this.session.lines([clean(`${name} failed: ${why}${more}`)])
  }
}
