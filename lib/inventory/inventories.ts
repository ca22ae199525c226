import { Background } from '../base/background.js'
import { notFound } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { View } from '../model/stored.js'
import type { RevokedDoc } from '../model/types/node.js'
import { NodeRate } from '../monitor/node-rate.js'
import { currentName } from '../monitor/node-status.js'
import type { KeptRecords, OpenRecords } from '../store/records.js'
import type { Change } from '../store/types.js'
import { changesOf, settled } from './changes.js'
import { type Facts, factsOf } from './facts.js'
import type { Inventory, InventoryDisk } from './shape.js'

/** The hardware of a node. */
export interface NodeInventory {
  /** Time of the first report that was so: ISO 8601, UTC. */
  readonly since: string
  readonly inventory: Inventory
}

/** A stored record. One that is appended has only the name: its text is that of memory, none removes it. */
type InventoryRecord = { readonly node: string } & Partial<NodeInventory>

interface Kept {
  /** Current name of the node; undefined once it is deleted. */
  name: string | undefined
  /** The record as JSON: a tenth of the memory that its objects take. */
  text: string
  facts?: Facts
}

const retryMs = { first: 2_000, longest: 10_000 }
/** Nodes written at once. */
const batchSize = 200

/**
 * Keeps what the nodes are made of (rules 6.16), in memory and stored. A report is stored before it is
 * answered; one that is equal to the last one is not written. A follower takes the records of the leader.
 */
export class Inventories {
  readonly #nodes = new Map<string, Kept>()
  /** Nodes whose stored record may be another one: deleted, renamed, or after a failed write. */
  readonly #pending = new Set<string>()
  readonly #rate = new NodeRate()
  readonly #writing: Background
  #records!: KeptRecords<InventoryRecord>
  /** Called with each node whose inventory is another one; must not throw. */
  onChange: (node: string) => void = () => undefined

  private constructor(
    readonly now: () => number,
    log: Pick<Log, 'warn' | 'info'>
  ) {
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs,
      onFailure: reason =>
        log.warn(`the inventories of nodes cannot be written, and it is tried again: ${reason}`),
      onRecovery: () => log.info('the inventories of nodes are written again')
    })
  }

  /** Reads the records that `open` opens; throws as `open` does. */
  static async open(
    open: OpenRecords,
    now: () => number,
    log: Pick<Log, 'warn' | 'info'>
  ): Promise<Inventories> {
    const all = new Inventories(now, log)
    all.#records = await open<InventoryRecord>({
      namesIn: ({ node }) => [node],
      appliesOnceStored: () => false,
      names: () => all.#nodes.keys(),
      recordsOf: node => all.#recordsOf(node),
      json: ({ node }) => all.#nodes.get(node)?.text,
      replaceRecords: (node, records) => all.#replace(node, records),
      reset: () => {
        all.#nodes.clear()
        all.#pending.clear()
      }
    })
    return all
  }

  /**
   * Records a report, and returns what changed in the hardware, a sentence each with the node's name. Rejects
   * with StoreError if it cannot be stored, with 404 if the node was deleted meanwhile, and with 503 if its
   * hardware changes too often.
   */
  async report(node: string, report: Inventory): Promise<string[]> {
    const kept = this.#nodes.get(node) ?? { name: node, text: '' }
    const before = kept.text === '' ? undefined : inventoryIn(kept).inventory
    const inventory = settled(before, report)
    if (before && JSON.stringify(before) === JSON.stringify(inventory)) return []
    this.#rate.takeOrThrow(node)
    const was = kept.text
    // In memory first: a rename or delete during the write then moves it along.
    this.#set(kept, { since: new Date(this.now()).toISOString(), inventory })
    this.#nodes.set(node, kept)
    const now = kept.text
    try {
      await this.#records.append({ node })
    } catch (error) {
      if (kept.text === now && was === '') this.#nodes.delete(node)
      else if (kept.text === now) this.#set(kept, inventoryIn({ text: was }))
      this.#markPending(node)
      throw error
    }
    if (kept.name === undefined) throw notFound(`there is no node ${node}`, 'no-object')
    this.onChange(kept.name)
    return before ? changesOf(before, inventory).map(text => `${kept.name}: ${text}`) : []
  }

  /** Returns a function that parses what a node is made of now; undefined before its first report. */
  snapshot(node: string): (() => NodeInventory) | undefined {
    const text = this.#nodes.get(node)?.text
    return text === undefined ? undefined : () => inventoryIn({ text })
  }

  /** Returns the disks of a node; undefined if they are not known. */
  disksOf(node: string): readonly InventoryDisk[] | undefined {
    return this.snapshot(node)?.().inventory.disks
  }

  /** Returns the facts in which nodes are compared; undefined before the first report. */
  factsOf(node: string): Facts | undefined {
    const kept = this.#nodes.get(node)
    if (!kept) return undefined
    kept.facts ??= factsOf(inventoryIn(kept).inventory)
    return kept.facts
  }

  /** Applies committed changes: an inventory follows a rename, and goes with a delete. */
  follow(changes: readonly Change[]): void {
    for (const { type, name, after } of changes)
      if (type === 'revoked' && after) this.#move(name, (after as RevokedDoc).renamed)
  }

  /** Repairs names after a crash between the change of a node and the change of its record. */
  catchUp(view: View): void {
    for (const node of [...this.#nodes.keys()]) this.#move(node, currentName(view, node))
  }

  /** Whether changes can be written, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    const { problem } = this.#writing
    return { ok: problem === '', reason: problem }
  }

  async close(): Promise<void> {
    await this.#writing.close()
    while (
      this.#pending.size > 0 &&
      (await this.#write().then(
        () => true,
        () => false
      ))
    );
    await this.#records.close()
  }

  #set(kept: Kept, { since, inventory }: NodeInventory): void {
    kept.text = JSON.stringify({ node: kept.name, since, inventory })
    delete kept.facts
  }

  *#recordsOf(node: string): Generator<InventoryRecord> {
    if (this.#nodes.has(node)) yield { node }
  }

  #replace(node: string, records: readonly InventoryRecord[]): void {
    this.#nodes.delete(node)
    for (const { since = '', inventory = {} } of records) {
      const kept: Kept = { name: node, text: '' }
      this.#set(kept, { since, inventory })
      this.#nodes.set(node, kept)
    }
    this.onChange(node)
  }

  #move(node: string, to: string | undefined): void {
    const kept = this.#nodes.get(node)
    if (!kept || node === to) return
    this.#nodes.delete(node)
    this.#markPending(node)
    const last = inventoryIn(kept)
    kept.name = to
    if (to === undefined) return
    this.#set(kept, last)
    this.#nodes.set(to, kept)
    this.#markPending(to)
    this.onChange(to)
  }

  #markPending(node: string): void {
    // The leader writes them too.
    if (this.#records.isReadOnly) return
    this.#pending.add(node)
    this.#writing.wake()
  }

  async #write(): Promise<void> {
    const batch = [...this.#pending].slice(0, batchSize)
    for (const node of batch) this.#pending.delete(node)
    try {
      await Promise.all(batch.map(node => this.#records.append({ node })))
    } catch (error) {
      // The new leader has what was stored, and repairs names.
      for (const node of this.#records.isReadOnly ? [] : batch) this.#pending.add(node)
      throw error
    }
    if (this.#pending.size > 0) this.#writing.wake()
  }
}

const inventoryIn = ({ text }: Pick<Kept, 'text'>): NodeInventory => JSON.parse(text) as NodeInventory
