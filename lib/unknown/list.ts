import { type Requester, runFairly } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { parseAddress } from '../model/address.js'
import { networkOf } from '../model/networks.js'
import type { View } from '../model/stored.js'
import { keysOf, nodeOf, type ScannedMachine, type SeenMachine, type UnknownMachines } from './machines.js'

/** The switch port that a machine is at. */
export type PortLocation = Readonly<Record<'switch' | 'port', string>>

export interface UnknownSources {
  /** The machines that asked this controller. */
  readonly own: Pick<UnknownMachines, 'all' | 'scanned'>
  /** The machines that asked the other controllers. */
  readonly others?: () => Promise<{
    readonly lists: readonly (readonly SeenMachine[])[]
    readonly missing: readonly { readonly controller: string; readonly reason: string }[]
  }>
  /** The switch ports of MACs, where they can be asked for. */
  readonly ports?: (macs: readonly string[]) => Promise<ReadonlyMap<string, PortLocation>>
}

/** Gathers the machines, their ports, and the controllers that did not answer, in steps for one client. */
export async function seenMachines({ own, others, ports }: UnknownSources, asker?: Requester) {
  const { lists, missing } = (await others?.()) ?? { lists: [], missing: [] }
  const machines = await runFairly(joined([own.all(), ...lists], own.scanned()), asker)
  const at = (await ports?.(machines.map(({ mac }) => mac))) ?? new Map<string, PortLocation>()
  return { machines, missing, ports: at }
}

type Texts = 'mac' | 'maker' | 'product' | 'serial' | 'uuid' | 'asset' | 'address' | 'network'
type Places = 'switch' | 'port' | 'bmc' | 'bmc_mac' | 'first' | 'last' | 'node' | 'conflict'

/** An unknown machine as an admin sees it; null: not known. Times: ISO 8601, UTC. */
export type UnknownMachine = { readonly [K in Texts | Places]: string | null } & {
  readonly macs: readonly string[]
  readonly count: number
}

/** Joins what several controllers saw: the first and last times, all requests, the last claims. */
function* merged(lists: readonly (readonly SeenMachine[])[]): Generator<void, SeenMachine[]> {
  const found = new Map<string, SeenMachine>()
  for (const one of lists.flat()) {
    yield
    const other = found.get(one.mac)
    const newer = other && other.last > one.last ? other : one
    const both = other && { first: Math.min(one.first, other.first), count: one.count + other.count }
    // An object that stays the same keeps its keys.
    found.set(one.mac, both ? { ...newer, ...both } : one)
  }
  return [...found.values()]
}

/** A machine in the list: it asked, or a scan found it, or both. */
type ListedMachine = SeenMachine &
  Partial<Pick<ScannedMachine, 'bmc' | 'bmcMac' | 'network'>> & { readonly doubt?: string }

/** Joins what scans found to the machines with its MACs, serial number or UUID; others have a count of 0. */
function* joined(
  lists: readonly (readonly SeenMachine[])[],
  scans: readonly { readonly machine: ScannedMachine; readonly at: number }[]
): Generator<void, ListedMachine[]> {
  const byKey = new Map<string, ScannedMachine>()
  for (const { machine } of scans) {
    yield
    for (const key of [...keysOf(machine), ...machine.macs]) byKey.set(key, machine)
  }
  const used = new Set<ScannedMachine>()
  const found: ListedMachine[] = []
  for (const machine of yield* merged(lists)) {
    yield
    const scan = scans.length > 0 && [machine.mac, ...keysOf(machine)].flatMap(key => byKey.get(key) ?? [])[0]
    if (!scan) {
      found.push(machine)
      continue
    }
    used.add(scan)
    const { network: _, ...scanned } = scan
    const macs = [...new Set([...machine.macs, ...scan.macs])]
    const isOther = scan.macs.length > 0 && !scan.macs.includes(machine.mac)
    const doubt = isOther ? { doubt: `its BMC ${scan.bmc} reports other MACs` } : {}
    found.push({ ...scanned, ...machine, macs, ...doubt })
  }
  for (const { machine, at } of scans)
    if (!used.has(machine))
      found.push({ ...machine, mac: machine.macs[0] ?? '', address: '', first: at, last: at, count: 0 })
  return found
}

const iso = (ms: number) => new Date(ms).toISOString()

/** Lists the machines whose MACs no node or device has, in steps. */
export function* unknownIn(
  view: View,
  seen: readonly ListedMachine[],
  ports: ReadonlyMap<string, PortLocation>
): Generator<void, UnknownMachine[]> {
  const strangers: ListedMachine[] = []
  for (const machine of seen) {
    yield
    if (!isKnown(view, machine)) strangers.push(machine)
  }
  const sharing = yield* sharedIds(strangers)
  const found: UnknownMachine[] = []
  for (const machine of strangers) {
    yield
    const { mac, macs, maker = null, product = null, serial = null, uuid = null, asset = null } = machine
    const { address, first, last, count } = machine
    const from = parseAddress(address)
    const place = ports.get(mac)
    const conflict = conflictOf(view, machine, sharing)
    const known = conflict === undefined ? nodeOf(view, machine) : undefined
    const node = typeof known === 'object' ? known.name : null
    found.push({
      ...{ mac: mac || null, macs, maker, product, serial, uuid, asset, address: address || null },
      network: machine.network ?? (from === undefined ? null : (networkOf(view, from) ?? null)),
      ...{ switch: place?.switch ?? null, port: place?.port ?? null },
      ...{ bmc: machine.bmc ?? null, bmc_mac: machine.bmcMac ?? null },
      ...{ first: iso(first), last: iso(last), count },
      node,
      conflict: conflict ?? (node && matchOf(node, mac || (machine.bmc ?? '')))
    })
  }
  return found
}

/** Returns why a machine is left out unless it is adopted as the node with its serial number. */
const matchOf = (node: string, machine: string) =>
  `node ${node} has its serial number or UUID, and no machine: ` +
  `type svcctl unknown adopt ${machine} as ${node}, or set [boot] by_serial = yes`

/** Whether a machine is a node's, or a device's. */
function isKnown({ index }: View, machine: ListedMachine): boolean {
  const { mac, macs, count, bmcMac = '' } = machine
  if (count > 0) return index.macOwners(mac).length > 0
  return (
    [...macs, bmcMac].some(one => index.macOwners(one).length > 0) ||
    keysOf(machine).some(key => index.lookup(key).length > 0)
  )
}

/** Returns the texts that no two machines share, each behind its kind. */
const idsOf = (machine: ListedMachine) => [
  ...keysOf(machine),
  // Of other MACs than its own a machine only says that they are its.
  ...(machine.bmc === undefined ? [machine.mac] : machine.macs).map(mac => `MAC/${mac}`)
]

/** Returns the machines by each of these texts. */
function* sharedIds(machines: readonly ListedMachine[]): Generator<void, Map<string, ListedMachine[]>> {
  const byId = new Map<string, ListedMachine[]>()
  for (const machine of machines) {
    yield
    for (const id of idsOf(machine)) addTo(byId, id, machine)
  }
  return byId
}

/** Returns why a machine may not be what it says; undefined if nothing speaks against it. */
function conflictOf(
  view: View,
  machine: ListedMachine,
  sharing: ReadonlyMap<string, readonly ListedMachine[]>
): string | undefined {
  const { mac, macs, before, doubt } = machine
  if (before !== undefined) return `it gave ${before} before`
  if (doubt !== undefined) return doubt
  for (const other of macs) {
    const [owner] = other === mac ? [] : view.index.macOwners(other)
    if (owner) return `its MAC ${other} is that of ${owner.title} ${owner.name}`
  }
  const node = nodeOf(view, machine)
  if (typeof node === 'string') return node
  for (const id of idsOf(machine)) {
    const other = sharing.get(id)?.find(one => one !== machine)
    const who = other?.bmc !== undefined && other.count === 0 ? `BMC ${other.bmc}` : `MAC ${other?.mac}`
    if (other) return `${who} gives the same ${id.split('/', 1)[0]}`
  }
  return mac === '' && keysOf(machine).length === 0 ? 'it gives no MAC and no serial number' : undefined
}
