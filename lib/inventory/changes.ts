import { firstOf } from '../base/log.js'
import { dimmsOf, diskSize, factNames, factsOf, isSameMemory, memorySize } from './facts.js'
import type { Inventory, InventoryDisk } from './shape.js'

/** Sentences of one report, and names in one. */
const mostSentences = 20
const mostNames = 10

const lastBoot = 'at the last boot'
/** Facts of which more can be told than their values, and those that an interface that is set up changes. */
const told: ReadonlySet<string> = new Set(['memory', 'dimms', 'drives', 'nics'])

/**
 * Returns what changed in the hardware between two reports, one sentence each, without the node's name.
 * Kernel, drivers, names, links and speeds are left out: software decides them.
 */
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
  ]
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
