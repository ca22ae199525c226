import { notFound } from '../base/errors.js'
import { clip, firstOf } from '../base/log.js'
import type { View } from '../model/stored.js'
import type { RevokedDoc } from '../model/types/node.js'
import { NodeRate } from '../monitor/node-rate.js'
import { currentName } from '../monitor/node-status.js'
import type { KeptRecords, OpenRecords } from '../store/records.js'
import type { Change } from '../store/types.js'
import {
  dimmsOf,
  diskSize,
  type Facts,
  factNames,
  factsOf,
  type Inventory,
  type InventoryDisk,
  isSameMemory,
  memorySize
} from './facts.js'

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
  /** NodeInventory as JSON, a tenth of the memory that its objects take; '' before the first report. */
  text: string
  /** The text before the reports that are being written; '' if there is none. */
  stored: string
  facts?: Facts
}

/** Keeps what nodes are made of (rules 6.16): a report that differs is stored before it is answered. */
export class Inventories {
  readonly #nodes = new Map<string, Kept>()
  readonly #rate = new NodeRate()
  #records!: KeptRecords<InventoryRecord>
  /** Called with each node whose inventory is another one; must not throw. */
  onChange: (node: string) => void = () => undefined

  private constructor(readonly now: () => number) {}

  /** Reads the records that `open` opens; throws as `open` does. */
  static async open(open: OpenRecords, now: () => number): Promise<Inventories> {
    const all = new Inventories(now)
    all.#records = await open<InventoryRecord>({
      namesIn: ({ node }) => [node],
      appliesOnceStored: () => false,
      names: () => all.#nodes.keys(),
      recordsOf: node => all.#recordsOf(node),
      json: ({ node }) => `{"node":${JSON.stringify(node)},${all.#nodes.get(node)?.text.slice(1)}`,
      // A follower takes the records of the leader.
      replaceRecords: (node, records) => all.#replace(node, records),
      reset: () => all.#nodes.clear()
    })
    return all
  }

  /**
   * Records a report, and returns what changed in the hardware, a sentence each with the node's name. Rejects
   * with StoreError if it cannot be stored, with 404 if the node was deleted meanwhile, and with 503 if its
   * hardware changes too often.
   */
  async report(node: string, report: Inventory): Promise<string[]> {
    const kept = this.#nodes.get(node) ?? { name: node, text: '', stored: '' }
    const inventory = settled(inventoryIn(kept.stored), report)
    const isEqual = JSON.stringify(inventoryIn(kept.stored)) === JSON.stringify(inventory)
    if (isEqual && kept.text === kept.stored) return []
    this.#rate.takeOrThrow(node)
    const text = JSON.stringify({ since: new Date(this.now()).toISOString(), inventory })
    // In memory first: a rename or delete during the write then moves it along.
    this.#nodes.set(node, kept)
    this.#set(kept, text)
    try {
      await this.#records.append({ node })
    } catch (error) {
      if (kept.text === text) this.#set(kept, kept.stored)
      throw error
    }
    const before = inventoryIn(kept.stored)
    kept.stored = text
    if (kept.name === undefined) throw notFound(`there is no node ${node}`, 'no-object')
    return before ? changesOf(before, inventory).map(change => `${kept.name}: ${change}`) : []
  }

  /** Returns a function that parses what a node is made of now; undefined before its first report. */
  snapshot(node: string): (() => NodeInventory) | undefined {
    const text = this.#nodes.get(node)?.text
    return text ? () => parsed(text) : undefined
  }

  /** Returns the disks of a node; undefined if they are not known. */
  disksOf(node: string): readonly InventoryDisk[] | undefined {
    return this.snapshot(node)?.().inventory.disks
  }

  /** Returns the facts in which nodes are compared; undefined before the first report. */
  factsOf(node: string): Facts | undefined {
    const kept = this.#nodes.get(node)
    if (!kept?.text) return undefined
    kept.facts ??= factsOf(parsed(kept.text).inventory)
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

  /** Whether the last write succeeded, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    return this.#records.health
  }

  close(): Promise<void> {
    return this.#records.close()
  }

  #set(kept: Kept, text: string): void {
    kept.text = text
    delete kept.facts
    if (kept.name !== undefined) this.onChange(kept.name)
  }

  *#recordsOf(node: string): Generator<InventoryRecord> {
    if (this.#nodes.get(node)?.text) yield { node }
  }

  #replace(node: string, records: readonly InventoryRecord[]): void {
    this.#nodes.delete(node)
    for (const { since = '', inventory = {} } of records) {
      const text = JSON.stringify({ since, inventory })
      this.#nodes.set(node, { name: node, text, stored: text })
    }
    this.onChange(node)
  }

  #move(node: string, to: string | undefined): void {
    const kept = this.#nodes.get(node)
    if (!kept || node === to) return
    this.#nodes.delete(node)
    kept.name = to
    if (to === undefined) return void this.#records.rewrite(node)
    this.#nodes.set(to, kept)
    void this.#records.rewrite(node, to)
    this.onChange(to)
  }
}

const parsed = (text: string): NodeInventory => JSON.parse(text) as NodeInventory
const inventoryIn = (text: string) => (text === '' ? undefined : parsed(text).inventory)

/** Sentences of one report, names in one, and its characters: nodes make the texts. */
const mostSentences = 20
const mostNames = 10
const longestSentence = 300

const lastBoot = 'at the last boot'
/** Facts of which more can be told than their values, and those that an interface that is set up changes. */
const told: ReadonlySet<string> = new Set(['memory', 'dimms', 'drives', 'nics'])

/** Returns what changed in the hardware; kernel, drivers, names, links and speeds are left to software. */
export function changesOf(before: Inventory, after: Inventory): string[] {
  const [was, now] = [factsOf(before), factsOf(after)]
  const [serial, serialBefore] = [after.system?.serial, before.system?.serial]
  const found = [
    ...(!serial || !serialBefore || serial === serialBefore
      ? []
      : [`serial number ${serial}, ${serialBefore} ${lastBoot}`]),
    ...factNames.flatMap(fact => {
      const [value, then] = [now[fact], was[fact]]
      if (told.has(fact) || value === undefined || then === undefined || value === then) return []
      return `${fact} ${value || 'none'}, ${then || 'none'} ${lastBoot}`
    }),
    ...memoryChanges(before, after),
    ...diskChanges(before.disks, after.disks),
    ...interfaceChanges(before.interfaces, after.interfaces)
  ].map(sentence => clip(sentence, longestSentence))
  if (found.length <= mostSentences) return found
  return [...found.slice(0, mostSentences), `${found.length - mostSentences} more changes of its hardware`]
}

function* memoryChanges(before: Inventory, after: Inventory): Generator<string> {
  const [was, now] = [dimmsOf(before), dimmsOf(after)]
  if (was && now) {
    const bySlot = new Map(was.map(dimm => [dimm.slot, dimm]))
    const gone = was.filter(({ slot }) => !now.some(dimm => dimm.slot === slot))
    if (was.length !== now.length) {
      const empty = gone.map(({ slot = '' }) => slot)
      const where =
        empty.length > 0 ? `: ${firstOf(empty, mostNames)} ${empty.length > 1 ? 'are' : 'is'} empty` : ''
      const slots = Math.max(after.memory?.slots?.length ?? 0, was.length)
      return yield `${now.length} of ${slots} DIMMs, ${was.length} ${lastBoot}${where}`
    }
    for (const { slot, size, serial } of now) {
      const then = bySlot.get(slot)
      if (then?.size !== size)
        yield `DIMM ${slot} has ${memorySize(size ?? 0)}, ${memorySize(then?.size ?? 0)} ${lastBoot}`
      else if (then?.serial !== serial) yield `DIMM ${slot} was replaced`
    }
  }
  const [total, then] = [after.memory?.total, before.memory?.total]
  if (total !== undefined && then !== undefined && !isSameMemory(total, then))
    yield `${memorySize(total)} of memory, ${memorySize(then)} ${lastBoot}`
}

/** Returns the identity of a disk: names change from boot to boot. */
const diskKey = ({ serial, by_id, name }: InventoryDisk) => serial ?? by_id?.[0] ?? name

const nameOf = ({ name, model, size, serial }: InventoryDisk) => {
  const about = [model, size === undefined ? undefined : diskSize(size), serial && `serial ${serial}`]
  return `${name} (${about.filter(Boolean).join(', ')})`
}

function* diskChanges(was: Inventory['disks'], now: Inventory['disks']): Generator<string> {
  if (!was || !now) return
  const known = new Map(was.map(disk => [diskKey(disk), disk]))
  const present = new Set(now.map(diskKey))
  const gone = was.filter(disk => !present.has(diskKey(disk)))
  for (const disk of now) {
    const then = known.get(diskKey(disk))
    const at = then ? -1 : gone.findIndex(({ name }) => name === disk.name)
    if (at >= 0)
      yield `disk ${nameOf(disk)} in the place of ${nameOf(gone.splice(at, 1)[0] as InventoryDisk)}`
    else if (!then) yield `disk ${nameOf(disk)} is new`
    else if (then.size !== disk.size) yield `disk ${nameOf(disk)} had ${diskSize(then.size ?? 0)} ${lastBoot}`
    else if (then.health !== disk.health && disk.health !== undefined)
      yield `disk ${nameOf(disk)} is ${disk.health}, ${then.health ?? 'unknown'} ${lastBoot}`
  }
  for (const disk of gone) yield `disk ${nameOf(disk)} is gone`
}

function* interfaceChanges(was: Inventory['interfaces'], now: Inventory['interfaces']): Generator<string> {
  const lacking = (these: Inventory['interfaces'] = [], those: Inventory['interfaces'] = []) =>
    these.filter(({ mac }) => !those.some(other => other.mac === mac))
  if (!was || !now) return
  for (const { name, mac } of lacking(now, was)) yield `interface ${name} with MAC ${mac} is new`
  for (const { name, mac } of lacking(was, now)) yield `interface ${name} with MAC ${mac} is gone`
}

/**
 * Returns the report to keep. The initramfs has fewer drivers and no wait for slow disks: after a report of
 * the system, one of an installation does not count for what drivers find. A little more memory is none.
 */
export function settled(before: Inventory | undefined, report: Inventory): Inventory {
  const total = before?.memory?.total
  const isSame = total !== undefined && isSameMemory(total, report.memory?.total ?? 0)
  const next = isSame ? { ...report, memory: { ...report.memory, total } } : report
  if (before?.source !== 'boot' || report.source === 'boot') return next
  const { source, disks, interfaces, pci, tpm, kernel, firmware } = before
  const drivers = new Map(pci?.map(card => [`${card.address} ${card.device}`, card]))
  return {
    ...next,
    ...{ source, firmware: { ...firmware, ...next.firmware } },
    ...(kernel === undefined ? {} : { kernel }),
    ...(disks ? { disks } : {}),
    ...(interfaces ? { interfaces } : {}),
    ...(tpm ? { tpm } : {}),
    ...(next.pci ? { pci: next.pci.map(card => drivers.get(`${card.address} ${card.device}`) ?? card) } : {})
  }
}
