import { forbidden, ServiceError } from '../base/errors.js'
import { firstOf, type Log } from '../base/log.js'
import { SlidingWindow } from '../base/rate-limit.js'
import { macsOf } from '../model/cluster-index.js'
import type { Actor, Model } from '../model/model.js'
import { docsOf, type Tx } from '../model/stored.js'
import type { HandoverDoc } from '../model/types/handover.js'
import type { NodeDoc } from '../model/types/node.js'
import { NodeRate } from '../monitor/node-rate.js'

const hourMs = 3_600_000
const minuteMs = 60_000
/** Nodes named in the condition. */
const mostNamed = 10

interface HandoverOptions {
  readonly model: Model
  /** `[boot] takeover`: whether a machine can take over another machine's node without an admin. */
  readonly takeover: 'yes' | 'released'
  /** `[boot] new_nodes`: nodes that consoles may create in a minute. */
  readonly newNodes: number
  /** Milliseconds since 1970, since a release survives a restart. */
  readonly now: () => number
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  readonly log: Log
}

export interface HandoverResult {
  /** The node that had this machine before. */
  readonly former: string | undefined
  /** One entry for each node that changed hands, for the log. */
  readonly takeovers: readonly HandoverDoc[]
}

/**
 * Assigns machines to nodes without an admin, from a console or by switch port (rules 4.23, 4.24). A node
 * that has a machine may have to be released first. Each takeover is kept until an admin has seen it.
 */
export class Handover {
  readonly #creations: SlidingWindow
  /** Log lines of a node. */
  readonly #logRate: NodeRate
  #limitLoggedMs = Number.NEGATIVE_INFINITY

  constructor(private readonly o: HandoverOptions) {
    this.#creations = new SlidingWindow(o.newNodes, minuteMs, o.ticks)
    this.#logRate = new NodeRate(o.ticks)
  }

  /** Assigns a machine within a transaction. Throws 403 if a node involved has to be released first. */
  assignMachine(tx: Tx, node: NodeDoc, mac: string, from: string): HandoverResult {
    const owner = this.o.model.ownerOfMac(tx, mac)
    const loser = owner?.type === 'node' && owner.name !== node.name ? tx.get('node', owner.name) : undefined
    const macs = macsOf(node.interfaces)
    const isTaken = macs.length > 0 && !macs.includes(mac)
    const told: HandoverDoc[] = []
    const change = (doc: NodeDoc, to?: string) => {
      this.#checkReleased(tx, doc)
      const noted = { name: doc.name, taken: this.o.now(), mac, ...(to === undefined ? {} : { to }), from }
      tx.put('handover', doc.name, noted)
      told.push(noted)
    }
    if (loser) change(loser, node.name)
    if (isTaken) change(node)
    return { former: this.o.model.moveMac(tx, node, mac), takeovers: told }
  }

  /** Logs takeovers after the commit, rate limited: two machines can take a node in turns forever. */
  logTakeovers({ takeovers, former }: HandoverResult, mac: string, to: string): void {
    const { log } = this.o
    for (const doc of takeovers) if (this.#logRate.take(doc.name)) log.warn(sentence(doc))
    if (former !== undefined && this.#logRate.take(`from ${former}`))
      log.info(`MAC ${mac} moved from node ${former} to node ${to}`)
  }

  /** Throws 403 for a node with a machine: without a MAC a takeover could not be recorded. */
  checkWithoutMac(node: NodeDoc): void {
    if (this.o.takeover === 'yes' || macsOf(node.interfaces).length === 0) return
    throw forbidden(
      `node ${node.name} has a machine. Ask with the MAC of yours: /boot/manual/hostname/${node.name}/<MAC>`,
      'machine-known'
    )
  }

  /** Lets one machine take over the node within an hour; returns the end (ISO 8601, UTC). Throws 404. */
  async release(name: string, actor: Actor): Promise<string> {
    const released = this.o.now()
    await this.#note(name, actor, () => ({ released }))
    return new Date(released + hourMs).toISOString()
  }

  /** Records that an admin has seen how the node changed hands. Throws 404. */
  async seen(name: string, actor: Actor): Promise<void> {
    await this.#note(name, actor, tx => ({ ...tx.get('handover', name), seen: this.o.now() }))
  }

  async #note(name: string, actor: Actor, of: (tx: Tx) => Omit<HandoverDoc, 'name'>): Promise<void> {
    const { model } = this.o
    await model.change(actor, tx => {
      model.get('node', name, tx)
      tx.put('handover', name, { name, ...of(tx) })
    })
  }

  /** Describes the takeovers that no admin has seen; undefined for none. */
  get condition(): { ok: true; reason: string } | undefined {
    const { view } = this.o.model
    const unseen = docsOf(view, 'handover').filter(
      ({ name, taken, seen }) => taken !== undefined && seen === undefined && view.get('node', name)
    )
    if (unseen.length === 0) return undefined
    const named = firstOf(unseen.map(sentence), mostNamed, '; ')
    const asks = unseen.slice(0, mostNamed).map(({ name }) => `GET /config/node/${name}/_seen`)
    return { ok: true, reason: `${named}. When you have seen it: ${asks.join(', ')}` }
  }

  /** Counts a node that a console creates. Throws 429 above `[boot] new_nodes` in a minute. */
  countNew(): void {
    const { newNodes, ticks, log } = this.o
    const { waitMs } = this.#creations
    if (waitMs === 0) return void this.#creations.book()
    const limit = `[boot] new_nodes = ${newNodes} lets consoles make no more nodes in a minute`
    const now = ticks()
    if (now - this.#limitLoggedMs >= minuteMs) {
      this.#limitLoggedMs = now
      log.warn(`${limit}: machines that ask for a new node are told to wait`)
    }
    throw new ServiceError(429, `${limit}. Try again in ${Math.ceil(waitMs / 1000)} s`)
  }

  #checkReleased(tx: Tx, { name }: NodeDoc): void {
    const { takeover, now } = this.o
    if (takeover === 'yes') return
    const age = now() - (tx.get('handover', name)?.released ?? Number.NEGATIVE_INFINITY)
    // Negative if the clock was set back: the age is then unknown.
    if (age >= 0 && age < hourMs) return
    throw forbidden(
      `node ${name} has a machine. An admin has to release it first, which lasts one hour: ` +
        `GET /config/node/${name}/_release`,
      'machine-known'
    )
  }
}

function sentence({ name, mac, to, from, taken = 0 }: HandoverDoc): string {
  const what = to === undefined ? `was taken over by machine ${mac}` : `lost its machine ${mac} to node ${to}`
  return `node ${name} ${what}, asked for from ${from} at ${new Date(taken).toISOString()}`
}
