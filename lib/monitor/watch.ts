import type { Model } from '../model/model.js'
import type { HandoverDoc } from '../model/types/handover.js'
import { typeNames } from '../model/types.js'
import type { Change } from '../store/types.js'
import type { Step } from './boot-steps.js'
import type { Boots } from './boots.js'
import type { Events } from './events.js'
import type { Health } from './health.js'
import type { NodeStatus } from './node-status.js'
import { nodeRow } from './overview.js'

/** The parts whose doings are events. */
export interface WatchedParts {
  readonly model: Pick<Model, 'view' | 'cluster'>
  readonly status: NodeStatus
  readonly boots: Boots
  readonly health: Health
  subscribe(listener: (changes: readonly Change[]) => void): void
}

/** What everybody who can log in can list. */
const shownTypes: ReadonlySet<string> = new Set([...typeNames, 'osimagetag', 'pack', 'cluster'])

/**
 * Lets those who watch know what nodes, their boots, the services and the objects do (rules 6.9). It is called on the way of
 * a boot script: each call is a note, and what is told is looked up later.
 */
export function watch(events: Events, { model, status, boots, health, subscribe }: WatchedParts): void {
  const watched = { model, status, boots }
  const ofNode = (node: string) =>
    events.note('node', node, () => nodeRow(watched, node) ?? { name: node, gone: true })
  status.told = ofNode
  boots.told = (node, step) => {
    ofNode(node)
    if (step) events.note('boot', `${node} ${step.step}`, () => stepOf(node, step))
  }
  health.told = name => events.note('service', name, () => ({ name, ...health.of(name) }))
  subscribe(changes => {
    for (const { type, name, before, after } of changes)
      if (type === 'node') ofNode(name)
      else if (type === 'handover') events.note('takeover', name, () => takeover(after as HandoverDoc))
      else if (shownTypes.has(type)) {
        const action = !before ? 'create' : after ? 'update' : 'delete'
        events.note('change', `${type} ${name}`, () => ({ type, name, action }))
      }
  })
}

const iso = (ms: number) => new Date(ms).toISOString()

const stepOf = (node: string, { step, about, from, time, last, count }: Step) => ({
  ...{ node, step, about, from, count },
  ...{ time: iso(time), last: iso(last) }
})

/** How a node changed hands; undefined where it did not, or an admin has seen it. */
function takeover(doc: HandoverDoc | undefined): object | undefined {
  if (doc?.taken === undefined || doc.seen !== undefined) return undefined
  const { name: node, mac, to = null, from, taken } = doc
  return { node, mac, to, from, time: iso(taken) }
}
