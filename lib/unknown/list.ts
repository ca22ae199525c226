import { contains, parseAddress } from '../model/address.js'
import { machineKeys } from '../model/machine-id.js'
import type { View } from '../model/stored.js'
import type { SeenMachine, UnknownMachines } from './machines.js'
import { nodeOf } from './node-of.js'

/** The switch port that a machine is at. */
export interface PortLocation {
  readonly switch: string
  readonly port: string
}

/** A controller whose list is missing, and why. */
interface Missing {
  readonly controller: string
  readonly reason: string
}

export interface Sources {
  /** The machines that asked this controller. */
  readonly own: Pick<UnknownMachines, 'all'>
  /** The machines that asked the other controllers. */
  readonly others?: () => Promise<{
    readonly lists: readonly (readonly SeenMachine[])[]
    readonly missing: readonly Missing[]
  }>
  /** The switch ports of MACs, where they can be asked for. */
  readonly ports?: (macs: readonly string[]) => Promise<ReadonlyMap<string, PortLocation>>
}

/** The unknown machines of all controllers. */
export class UnknownList {
  constructor(private readonly sources: Sources) {}

  /** Gathers the machines, their ports, and the controllers that did not answer. */
  async seen() {
    const { own, others, ports } = this.sources
    const { lists, missing } = (await others?.()) ?? { lists: [], missing: [] }
    const machines = merged([own.all(), ...lists])
    const at = (await ports?.(machines.map(({ mac }) => mac))) ?? new Map<string, PortLocation>()
    return { machines, missing, ports: at }
  }
}

/** An unknown machine as an admin sees it; null: not known. Times: ISO 8601, UTC. */
export interface UnknownMachine {
  readonly mac: string | null
  readonly macs: readonly string[]
  readonly maker: string | null
  readonly product: string | null
  readonly serial: string | null
  readonly uuid: string | null
  readonly asset: string | null
  readonly address: string | null
  /** The network of svcd that the address is in. */
  readonly network: string | null
  readonly switch: string | null
  readonly port: string | null
  readonly first: string | null
  readonly last: string | null
  readonly count: number
  /** Why it may not be what it says; null: nothing speaks against it. */
  readonly conflict: string | null
}

/** Joins what several controllers saw: the first and last times, all requests, the last claims. */
function merged(lists: readonly (readonly SeenMachine[])[]): SeenMachine[] {
  const found = new Map<string, SeenMachine>()
  for (const one of lists.flat()) {
    const other = found.get(one.mac)
    const [older, newer] = other && other.last > one.last ? [one, other] : [other ?? one, one]
    const first = Math.min(older.first, newer.first)
    found.set(one.mac, { ...newer, first, count: other ? other.count + one.count : one.count })
  }
  return [...found.values()]
}

const iso = (ms: number) => new Date(ms).toISOString()

/** Lists the machines whose MACs no node or device has, in steps. */
export function* unknownIn(
  view: View,
  seen: readonly SeenMachine[],
  ports: ReadonlyMap<string, PortLocation>
): Generator<void, UnknownMachine[]> {
  const strangers = seen.filter(({ mac }) => view.index.macOwners(mac).length === 0)
  const sharing = sharedIds(strangers)
  const found: UnknownMachine[] = []
  for (const machine of strangers) {
    yield
    const { mac, macs, maker = null, product = null, serial = null, uuid = null, asset = null } = machine
    const { address, first, last, count } = machine
    const place = ports.get(mac)
    found.push({
      ...{ mac, macs, maker, product, serial, uuid, asset, address, network: networkOf(view, address) },
      ...{ switch: place?.switch ?? null, port: place?.port ?? null },
      ...{ first: iso(first), last: iso(last), count },
      conflict: conflictOf(view, machine, sharing) ?? null
    })
  }
  return found
}

/** Returns the network with an address; null if there is none. */
function networkOf(view: View, text: string): string | null {
  const address = parseAddress(text)
  if (address === undefined) return null
  for (const [name, prefix] of view.index.networks) if (contains(prefix, address)) return name
  return null
}

/** Returns the machines by each serial number and UUID that they give. */
function sharedIds(machines: readonly SeenMachine[]): Map<string, string[]> {
  const byId = new Map<string, string[]>()
  for (const machine of machines)
    for (const id of machineKeys(machine)) {
      const macs = byId.get(id)
      if (macs) macs.push(machine.mac)
      else byId.set(id, [machine.mac])
    }
  return byId
}

/** Returns why a machine may not be what it says; undefined if nothing speaks against it. */
function conflictOf(
  view: View,
  machine: SeenMachine,
  sharing: ReadonlyMap<string, readonly string[]>
): string | undefined {
  const { mac, macs, before } = machine
  if (before !== undefined) return `it gave ${before} before`
  for (const other of macs) {
    const [owner] = other === mac ? [] : view.index.macOwners(other)
    if (owner) return `its MAC ${other} is that of ${owner.title} ${owner.name}`
  }
  const node = nodeOf(view, machine)
  if (typeof node === 'string') return node
  if (node) return `node ${node.name} has its serial number or UUID, and no machine`
  for (const id of machineKeys(machine)) {
    const other = sharing.get(id)?.find(one => one !== mac)
    if (other !== undefined) return `MAC ${other} gives the same ${id.split('/', 1)[0]}`
  }
  return undefined
}
