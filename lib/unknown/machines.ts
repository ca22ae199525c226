import { cachedPerObject } from '../base/concurrency.js'
import { Parties } from '../base/lists.js'
import { firstOf, type Log, oneLine } from '../base/log.js'
import { RateLimit } from '../base/rate-limit.js'
import { clientNetworkOf } from '../base/request-source.js'
import { isBmc } from '../model/cluster-index.js'
import { differ, type MachineIds, machineKeys, serialKey, uuidKey } from '../model/machine-id.js'
import { parseMac } from '../model/names.js'
import type { View } from '../model/stored.js'
import type { NodeDoc } from '../model/types/node.js'

/** A machine's description of itself, by a stranger: the texts are short, printable and without quotes. */
export interface Claims {
  /** Its hardware addresses. */
  readonly macs: readonly string[]
  readonly maker?: string
  readonly product?: string
  readonly serial?: string
  readonly uuid?: string
  readonly asset?: string
}

/** A machine that asked for a boot script with a MAC that no node had. Times: milliseconds since 1970. */
export interface SeenMachine extends Claims {
  /** The MAC that it asked with. */
  readonly mac: string
  /** Source address of its last request. */
  readonly address: string
  readonly first: number
  readonly last: number
  readonly count: number
  /** The serial number or UUID that it gave before, if that was another one. */
  readonly before?: string
  /** Why it did not become the node with its serial number. */
  readonly refused?: string
}

/** A machine that a scan of BMCs found (rules 13.5). */
export interface ScannedMachine extends Claims {
  /** Address of its BMC. */
  readonly bmc: string
  readonly bmcMac?: string
  /** The network that was scanned. */
  readonly network: string
}

interface Options {
  readonly log: Pick<Log, 'info' | 'warn'>
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  /** `[boot] unknown_age`, in milliseconds. */
  readonly ageMs: number
  /** The objects, with `[boot] by_serial`. */
  readonly model?: { readonly view: View } | undefined
  /** Called with a new machine or refusal; undefined: more came than are reported one by one. */
  readonly onNew?: (machine: SeenMachine | undefined) => void
}

/** Machines in the list, and those of one source address. */
export const MOST_MACHINES = 4096
export const MOST_OF_SOURCE = 256
const MOST_MACS = 8
const LONGEST = 64
const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/
/** New machines that are logged and sent as events: so many at once, then one in a second. */
const REPORTED = { burst: 64, refill: 1, everyMs: 1000 }

/** Returns a text of a stranger, safe for terminals, pages, logs and shells; undefined for an empty one. */
export function tame(text: unknown): string | undefined {
  if (typeof text !== 'string') return undefined
  const printable = text.slice(0, 4 * LONGEST).replace(/[^\x20-\x7e]|["'<>&\\`$|;]/g, '?')
  return printable.replace(/ +/g, ' ').trim().slice(0, LONGEST).trim() || undefined
}

/** Returns the valid MACs of a list, each once, at most 8. */
export const macsOf = (given: readonly unknown[]): string[] =>
  [
    ...new Set(
      given
        .slice(0, 4 * MOST_MACS)
        .flatMap(one => (typeof one === 'string' && one.length <= LONGEST ? (parseMac(one) ?? []) : []))
    )
  ].slice(0, MOST_MACS)

/** Returns the claims that have a value; `textOf` reads those that are texts. */
export function claims(
  macs: readonly unknown[],
  textOf: (name: Exclude<keyof Claims, 'macs'>) => unknown
): Claims {
  const names = ['maker', 'product', 'serial', 'uuid', 'asset'] as const
  const said = names.flatMap(name => {
    const text = tame(name === 'uuid' ? String(textOf(name) ?? '').toLowerCase() : textOf(name))
    return text === undefined || (name === 'uuid' && !UUID.test(text)) ? [] : [[name, text] as const]
  })
  return { macs: macsOf(macs), ...Object.fromEntries(said) }
}

/** Returns the serial number and the UUID that name a machine. */
const idsOf = ({ serial, uuid }: MachineIds): MachineIds => ({
  ...(serial !== undefined && serialKey(serial) !== undefined ? { serial } : {}),
  ...(uuid !== undefined && uuidKey(uuid) !== undefined ? { uuid } : {})
})

/** Returns what a machine with this MAC says in the query of its boot page. */
export const claimsOf = (mac: string, query: URLSearchParams): Claims =>
  claims(
    [mac, ...(query.get('macs') ?? '').slice(0, 512).split(',')],
    // The first of several values counts: an "&" within one cannot replace those before it.
    name => query.get(name)
  )

/** A machine of the list. */
interface Entry {
  /** The source that it came from first. */
  readonly party: string
  readonly machine: SeenMachine
  /** Its last serial number and UUID: a request without them leaves them. */
  readonly ids: MachineIds
  /** Time of its last request by the monotonic clock. */
  readonly asked: number
}

/**
 * The machines that asked for a boot script and belong to no node (rules 4.37): 4,096 in memory. Above that
 * the source address with the most machines loses its oldest one, so that a stranger pushes out his own.
 */
export class UnknownMachines {
  readonly #byMac = new Map<string, Entry>()
  /** The MACs of each source, the one that asked longest ago first. */
  readonly #bySource = new Parties<string>()
  readonly #reported: RateLimit
  /** By the address of the BMC, the one found longest ago first. */
  readonly #scanned = new Map<
    string,
    { readonly machine: ScannedMachine; readonly at: number; readonly found: number }
  >()

  constructor(private readonly o: Options) {
    this.#reported = new RateLimit(REPORTED, o.ticks)
  }

  /** Records a request. Never throws; its cost does not depend on the number of nodes. */
  note(mac: string, query: URLSearchParams, address: string): void {
    const { now, ticks, model } = this.o
    const said = claimsOf(mac, query)
    const known = this.#byMac.get(mac)
    // A machine stays with its first source: else a stranger could take it over, and push it out.
    const { party = clientNetworkOf(address), machine: was, ids = {} } = known ?? {}
    if (!known) this.#makeRoom(party)
    const before = differ(ids, said) ? (ids.serial ?? ids.uuid) : was?.before
    const refused = model && nodeOf(model.view, said)
    const machine: SeenMachine = {
      ...{ mac, ...said, address, first: was?.first ?? now(), last: now(), count: (was?.count ?? 0) + 1 },
      ...(before === undefined ? {} : { before }),
      ...(typeof refused === 'string' ? { refused } : {})
    }
    this.#byMac.set(mac, { party, machine, ids: { ...ids, ...idsOf(said) }, asked: ticks() })
    this.#bySource.delete(party, mac)
    this.#bySource.add(party, mac)
    if (!known || machine.refused !== was?.refused) this.#report(machine)
  }

  /** With `[boot] by_serial`, finds the node of a machine in any state of the objects (rules 4.38). */
  find(mac: string, query: URLSearchParams) {
    if (!this.o.model) return undefined
    const said = claimsOf(mac, query)
    return (view: View) => {
      const node = nodeOf(view, said)
      return typeof node === 'object'
        ? { node, where: 'the machine with its serial number or UUID' }
        : undefined
    }
  }

  /** Returns the machines that asked this controller, in the order in which they came. */
  all(): SeenMachine[] {
    const oldest = this.o.ticks() - this.o.ageMs
    for (const [mac, { asked }] of [...this.#byMac]) if (asked < oldest) this.#remove(mac)
    return [...this.#byMac.values()].map(({ machine }) => machine)
  }

  /** Keeps a machine that a scan found: 4,096 at most. */
  addScanned(machine: ScannedMachine): void {
    const { bmc } = machine
    this.#scanned.delete(bmc)
    const [oldest] = this.#scanned.size < MOST_MACHINES ? [] : this.#scanned.keys()
    if (oldest !== undefined) this.#scanned.delete(oldest)
    this.#scanned.set(bmc, { machine, at: this.o.now(), found: this.o.ticks() })
  }

  /** Returns the machines that scans found, each with the time, in milliseconds since 1970. */
  scanned(): { readonly machine: ScannedMachine; readonly at: number }[] {
    const oldest = this.o.ticks() - this.o.ageMs
    return [...this.#scanned.values()].filter(({ found }) => found >= oldest)
  }

  /** Drops a machine where the source has too many, or the list is full. */
  #makeRoom(party: string): void {
    const own = this.#bySource.of(party)
    let most = own
    if (own.size < MOST_OF_SOURCE) {
      if (this.#byMac.size < MOST_MACHINES) return
      const { largest } = this.#bySource
      if (largest.size > own.size) most = largest
    }
    const [oldest] = most
    if (oldest !== undefined) this.#remove(oldest)
  }

  #remove(mac: string): void {
    const { party = '' } = this.#byMac.get(mac) ?? {}
    this.#byMac.delete(mac)
    this.#bySource.delete(party, mac)
  }

  #report(machine: SeenMachine): void {
    const { log, onNew } = this.o
    if (!this.#reported.take('')) {
      onNew?.(undefined)
      return
    }
    const { mac, maker = '', product = '', serial, address, refused } = machine
    const what = [maker, product, serial && `serial ${serial}`].filter(Boolean).join(' ')
    const head = `unknown machine ${mac}${what && ` (${what})`} asks from ${address}`
    if (refused === undefined) log.info(oneLine(`${head}: svcctl unknown list`))
    else log.warn(oneLine(`${head}, and stays unknown: ${refused}`))
    onNew?.(machine)
  }
}

/** Returns the lookup keys of a machine that stays as it is. */
export const keysOf = cachedPerObject(machineKeys)

/** Returns the node with these ids and no machine (rules 4.38); why it is none; undefined without a node. */
export function nodeOf(view: View, machine: MachineIds): NodeDoc | string | undefined {
  const keys = keysOf(machine)
  const names = [...new Set(keys.flatMap(key => view.index.lookup(key)))]
  const [name = ''] = names
  const node = view.get('node', name)
  if (!node) return undefined
  if (names.length > 1) return `nodes ${firstOf(names.sort(), 3)} have its serial number or UUID`
  if (differ(node, machine)) return `node ${name} has its serial number or UUID, but not both`
  const mac = node.interfaces?.find(entry => entry.macaddress !== undefined && !isBmc(entry))?.macaddress
  return mac === undefined ? node : `node ${name} has its serial number or UUID, and the machine ${mac}`
}
