import { type Log, oneLine } from '../base/log.js'
import { RateLimit } from '../base/rate-limit.js'
import { clientNetworkOf } from '../base/request-source.js'
import { serialKey, uuidKey } from '../model/machine-id.js'
import { parseMac } from '../model/names.js'

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
}

/** As `SeenMachine`, with times of the monotonic clock. */
interface Entry {
  readonly party: string
  readonly machine: SeenMachine
}

interface Options {
  readonly log: Pick<Log, 'info'>
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  /** `[boot] unknown_age`, in milliseconds. */
  readonly ageMs: number
  /** Called with a new machine; undefined: there are more new ones than are told one by one. */
  readonly onNew?: (machine: SeenMachine | undefined) => void
}

/** Machines in the list, and those of one source address. */
export const MOST_MACHINES = 4096
export const MOST_OF_SOURCE = 256
const MOST_MACS = 8
const LONGEST = 64
/** New machines that are logged and sent as events: so many at once, then one in a second. */
const TOLD = { burst: 64, refill: 1, everyMs: 1000 }

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

/** Returns the claims that have a value. */
export function claims(macs: readonly unknown[], texts: Readonly<Record<string, unknown>>): Claims {
  const names = ['maker', 'product', 'serial', 'uuid', 'asset'] as const
  const told = names.flatMap(name => {
    const text = tame(texts[name])
    return text === undefined ? [] : [[name, text] as const]
  })
  return { macs: macsOf(macs), ...Object.fromEntries(told) }
}

/** Returns what a machine with this MAC says in the query of its boot page. */
export const claimsOf = (mac: string, query: URLSearchParams): Claims =>
  claims(
    [mac, ...(query.get('macs') ?? '').slice(0, 512).split(',')],
    // The first of several values counts: an "&" within one cannot replace those before it.
    Object.fromEntries(['serial', 'uuid', 'maker', 'product', 'asset'].map(name => [name, query.get(name)]))
  )

/** Whether a machine says of itself that it is another one than before. */
const contradicts = (one: Claims, other: Claims) =>
  [serialKey, uuidKey].some((key, i) => {
    const [a, b] = i === 0 ? [key(one.serial), key(other.serial)] : [key(one.uuid), key(other.uuid)]
    return a !== undefined && b !== undefined && a !== b
  })

/**
 * The machines that asked for a boot script and belong to no node (rules 4.37): 4,096 in memory. Above that
 * the source address with the most machines loses its oldest one, so that a stranger pushes out his own.
 */
export class UnknownMachines {
  readonly #byMac = new Map<string, Entry>()
  /** The MACs of each source, the one that asked longest ago first. */
  readonly #bySource = new Map<string, Set<string>>()
  readonly #told: RateLimit

  constructor(private readonly o: Options) {
    this.#told = new RateLimit(TOLD, o.ticks)
  }

  /** Records a request. Never throws; its cost does not depend on the number of nodes. */
  note(mac: string, query: URLSearchParams, address: string): void {
    const { ticks } = this.o
    const said = claimsOf(mac, query)
    const known = this.#byMac.get(mac)
    // A machine stays with its first source: else a stranger could take it over, and push it out.
    const party = known?.party ?? clientNetworkOf(address)
    if (!known) this.#makeRoom(party)
    const was = known?.machine
    const before = was && contradicts(was, said) ? (was.serial ?? was.uuid) : was?.before
    const machine: SeenMachine = {
      ...{ mac, ...said, address, first: was?.first ?? ticks(), last: ticks(), count: (was?.count ?? 0) + 1 },
      ...(before === undefined ? {} : { before })
    }
    this.#byMac.set(mac, { party, machine })
    const own = this.#bySource.get(party) ?? new Set()
    this.#bySource.set(party, own)
    own.delete(mac)
    own.add(mac)
    if (!known) this.#tell(machine)
  }

  /** Returns the machines that asked this controller, in the order in which they came. */
  all(): SeenMachine[] {
    const { now, ticks, ageMs } = this.o
    const at = now() - ticks()
    const oldest = ticks() - ageMs
    for (const { machine } of [...this.#byMac.values()]) if (machine.last < oldest) this.#remove(machine.mac)
    return [...this.#byMac.values()].map(({ machine }) => ({
      ...machine,
      ...{ first: Math.round(machine.first + at), last: Math.round(machine.last + at) }
    }))
  }

  /** Drops a machine where the source has too many, or the list is full. */
  #makeRoom(party: string): void {
    let most = this.#bySource.get(party)
    if ((most?.size ?? 0) < MOST_OF_SOURCE) {
      if (this.#byMac.size < MOST_MACHINES) return
      for (const macs of this.#bySource.values()) if (!most || macs.size > most.size) most = macs
    }
    const [oldest] = most ?? []
    if (oldest !== undefined) this.#remove(oldest)
  }

  #remove(mac: string): void {
    const { party } = this.#byMac.get(mac) ?? {}
    this.#byMac.delete(mac)
    const own = party === undefined ? undefined : this.#bySource.get(party)
    own?.delete(mac)
    if (party !== undefined && own?.size === 0) this.#bySource.delete(party)
  }

  #tell(machine: SeenMachine): void {
    const { log, onNew, now, ticks } = this.o
    if (!this.#told.take('')) {
      onNew?.(undefined)
      return
    }
    const { mac, maker = '', product = '', serial, address } = machine
    const what = [maker, product, serial && `serial ${serial}`].filter(Boolean).join(' ')
    log.info(
      oneLine(`unknown machine ${mac}${what && ` (${what})`} asks from ${address}: svcctl unknown list`)
    )
    const at = now() - ticks()
    onNew?.({ ...machine, first: machine.first + at, last: machine.last + at })
  }
}
