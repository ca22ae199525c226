import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { type CachedResult, cachedFor, runSliced } from '../base/concurrency.js'
import { groupOf, imageOf, settingsOf, variablesOf } from '../model/effective.js'
import type { Model } from '../model/model.js'
import type { HandoverDoc } from '../model/types/handover.js'
import { actionOf, typeNames } from '../model/types.js'
import type { Change } from '../store/types.js'
import type { Step } from './boot-steps.js'
import type { Boots } from './boots.js'
import type { Events } from './events.js'
import type { Health } from './health.js'
import type { NodeStatus } from './node-status.js'
import { isStale, packOnRestart } from './stale.js'

interface OverviewSources {
  readonly model: Pick<Model, 'view' | 'cluster'>
  readonly status: Pick<NodeStatus, 'history' | 'problem'>
  readonly boots: Pick<Boots, 'present' | 'running'>
  /** How a node is not like the others of its group; '' if it is. */
  readonly oddOf: (node: string) => string
  /** The result of its last proof: `good`, or a verdict with its reason; '' without a proof. */
  readonly trustOf: (node: string) => string
}

/** Columns of the overview, in this order (rules 6.10). Times are milliseconds since 1970. */
export const nodeColumns = [
  'name',
  'group',
  'rack',
  'rack_unit',
  'rack_height',
  'osimage',
  'netboot',
  'state',
  'since',
  'reason',
  'step',
  'stepped',
  'pack',
  'stale',
  'odd',
  'trust'
] as const

type NodeRow = { readonly [K in (typeof nodeColumns)[number]]: string | number | boolean | null }

/** Returns the row of a node; undefined for a deleted one. Takes a few microseconds. */
function nodeRow(
  { model, status, boots, oddOf, trustOf }: OverviewSources,
  name: string
): NodeRow | undefined {
  const node = model.view.get('node', name)
  if (!node) return undefined
  const group = groupOf(model.view, node)
  const settings = settingsOf(node, group, model.cluster)
  const variables = variablesOf(node, group, model.cluster)
  const last = status.history(name).at(-1)
  const present = boots.present(name)
  const running = boots.running(name)
  return {
    name,
    group: node.group ?? null,
    rack: variables?.rack ?? null,
    rack_unit: variables?.rack_unit ?? null,
    rack_height: variables?.rack_height ?? null,
    osimage: imageOf(model.view, settings)?.name ?? null,
    netboot: settings.netboot,
    state: last?.state ?? null,
    since: last ? Date.parse(last.time) : null,
    reason: status.problem(name),
    step: present?.step.step ?? null,
    stepped: present?.step.last ?? null,
    pack: running?.pack ?? null,
    stale: running ? isStale(running, packOnRestart(model, name)) : null,
    odd: oddOf(name) || null,
    trust: trustOf(name) || null
  }
}

/**
 * Makes the overview as JSON text, in slices. `mark` is the event up to which it is at least true; `indent`:
 * spaces for a level, 0 for one line.
 */
function* overviewText(
  watched: OverviewSources,
  mark: string,
  groups?: readonly string[],
  indent = 0
): Generator<void, string> {
  const line = (level: number) => (indent > 0 ? `\n${' '.repeat(indent * level)}` : '')
  const rows: string[] = []
  for (const name of [...watched.model.view.names('node')]) {
    yield
    if (groups && !groups.includes(watched.model.view.get('node', name)?.group ?? '')) continue
    const row = nodeRow(watched, name)
    if (row) rows.push(line(4) + JSON.stringify(Object.values(row), null, indent).replaceAll('\n', line(4)))
  }
  const overview = { mark, columns: nodeColumns, nodes: [] }
  const empty = JSON.stringify({ monitor: { overview } }, null, indent)
  const at = empty.lastIndexOf(']')
  return empty.slice(0, at) + rows.join(',') + (rows.length > 0 ? line(3) : '') + empty.slice(at)
}

/** One overview serves all requests within this time: after a change all pages ask at once. */
const SHARED_MS = 1000

const zip = promisify<string, Buffer>(gzip)

/** The overview as JSON text, compressed at most once. */
interface OverviewText {
  readonly text: string
  zipped(): Promise<Buffer>
}

/** The overview of all nodes, shared by requests that come at about the same time (rules 6.10). */
export class Overview {
  readonly #shared: CachedResult<OverviewText>

  constructor(
    private readonly watched: OverviewSources,
    private readonly events: Pick<Events, 'cursor'>
  ) {
    this.#shared = cachedFor(SHARED_MS, async () => {
      // First, so that changes made meanwhile come after this event.
      const mark = events.cursor()
      const text = await runSliced(overviewText(watched, mark))
      let zipping: Promise<Buffer> | undefined
      return {
        text,
        zipped: () => {
          zipping ??= zip(`${text}\n`)
          return zipping
        }
      }
    })
  }

  text(): Promise<OverviewText> {
    return this.#shared.get()
  }

  /** Makes the overview of the nodes of some groups, or of all, in steps. */
  textOf(groups?: readonly string[], indent?: number): Generator<void, string> {
    return overviewText(this.watched, this.events.cursor(), groups, indent)
  }

  /** Applies committed changes. Unless only nodes changed, pages reload and need a new overview. */
  follow(changes: readonly Change[]): void {
    if (changes.some(({ type }) => type !== 'node')) this.#shared.invalidate()
  }
}

interface WatchedParts extends OverviewSources {
  readonly status: NodeStatus
  readonly boots: Boots
  readonly health: Health
  readonly odd: { onChange: (node: string) => void }
  subscribe(listener: (changes: readonly Change[]) => void): void
}

const listedTypes: ReadonlySet<string> = new Set([...typeNames, 'osimagetag', 'pack', 'cluster'])

/** Connects all parts to the event stream (rules 6.9). A boot script calls this: data is looked up later. */
export function connectEvents(events: Events, { health, odd, subscribe, ...watched }: WatchedParts): void {
  const { status, boots } = watched
  const ofNode = (node: string) =>
    events.notify('node', node, () => nodeRow(watched, node) ?? { name: node, gone: true })
  status.onChange = ofNode
  odd.onChange = ofNode
  boots.onChange = (node, step) => {
    ofNode(node)
    if (step) events.notify('boot', `${node} ${step.step}`, () => stepOf(node, step))
  }
  health.onChange = name => events.notify('service', name, () => ({ name, ...health.of(name) }))
  subscribe(changes => {
    for (const { type, name, before, after } of changes)
      if (type === 'node') ofNode(name)
      else if (type === 'handover') events.notify('takeover', name, () => takeover(after as HandoverDoc))
      else if (listedTypes.has(type)) {
        const action = actionOf({ before, after })
        events.notify('change', `${type} ${name}`, () => ({ type, name, action }))
      }
  })
}

const iso = (ms: number) => new Date(ms).toISOString()

const stepOf = (node: string, { step, about, from, time, last, count }: Step) => ({
  ...{ node, step, about, from, count },
  ...{ time: iso(time), last: iso(last) }
})

/** Returns the event for a node that changed hands; undefined if it did not, or if an admin has seen it. */
function takeover(doc: HandoverDoc | undefined): object | undefined {
  if (doc?.taken === undefined || doc.seen !== undefined) return undefined
  const { name: node, mac, to = null, from, taken } = doc
  return { node, mac, to, from, time: iso(taken) }
}
