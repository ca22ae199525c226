import { isIP } from 'node:net'
import { Background } from '../background.js'
import { nameRule } from '../config/values.js'
import type { Log } from '../log.js'
import type { NamedController } from '../model/stored.js'
import { compareNames } from '../store/order.js'
import type { Records, SharedMemory } from '../store/records.js'
import { AgreedZones } from './dns/agreed-zones.js'
import type { Told } from './dns/serials.js'

/** What is kept of a zone, or of a controller. */
type Entry = { readonly key: string } & (
  | Told
  | {
      readonly address: string
      /** When it was last there, in milliseconds since 1970; a day behind at most. */
      readonly seenMs: number
      readonly port: number
      readonly ini: string
      /** Since when it is gone; absent: it is there. */
      readonly goneMs?: number
      /** It is gone for so long that zones do not name it any more. */
      readonly isUnnamed?: boolean
    }
)
type Noted = Extract<Entry, { address: string }>
/** Says which entry was changed; what it is now is in memory. */
type Changed = Pick<Entry, 'key'>

/** A controller, with where it answers and the path of its ini. */
type Shown = NamedController & Pick<Noted, 'port' | 'ini'>

interface SharedServicesOptions {
  readonly self: Shown
  /** The other controllers that are there now; undefined: nobody has looked so far. */
  readonly others: () => readonly Shown[] | undefined
  readonly log: Log
  /** Milliseconds since 1970. */
  readonly now: () => number
}

const ZONE = 'zone/'
const CONTROLLER = 'controller/'
const LOOK_MS = 5_000
const RETRY_MS = { first: 1_000, longest: 60_000 }
const DAY_MS = 86_400_000
/** One that was not there for so long has gone for good: zones name it no more. */
const GONE_MS = 7 * DAY_MS
/** So many that are gone are kept. */
const MOST_GONE = 100

/**
 * What controllers that share the objects have to agree on for DHCP and DNS: the serial of each zone, and which controllers there
 * are, as zones name them all. The one that writes decides, and stores it; the others hear it.
 */
export class SharedServices {
  readonly #entries = new Map<string, Entry>()
  /** What was decided and may not be stored. */
  readonly #unsure = new Set<string>()
  #controllers: readonly NamedController[] = []
  /** Something of what is kept was changed since they were listed. */
  #mayDiffer = true
  #records!: Records<Changed>
  readonly #looking: Background
  /** Is told that something else holds now; it must not throw. */
  heard: (what: 'a zone' | 'a controller') => void = () => {}

  private constructor(private readonly o: SharedServicesOptions) {
    this.#looking = new Background({
      work: () => this.#keepControllers(),
      everyMs: LOOK_MS,
      retryMs: RETRY_MS,
      failed: reason =>
        o.log.warn(`DNS: which controllers there are cannot be stored, and is tried again: ${reason}`)
    })
  }

  /** Reads what is stored; `open` opens the records. */
  static async open(
    open: (memory: SharedMemory<Changed>) => Promise<Records<Changed>>,
    options: SharedServicesOptions
  ): Promise<SharedServices> {
    const shared = new SharedServices(options)
    shared.#records = await open(shared.#memory())
    // Before the first rendering: zones name this controller from the beginning.
    await shared.#looking.run().catch(() => {})
    return shared
  }

  /** Whether another controller writes, or nobody. */
  get isFollowing(): boolean {
    return this.#records.isFollowing
  }

  /** Whether another controller is there to write when this one, which writes, is stopped. */
  get hasSuccessor(): boolean {
    return !this.isFollowing && (this.o.others() ?? []).length > 0
  }

  /** The controllers that zones name, in natural order: the same on all of them, and the same array until they change. */
  get controllers(): readonly NamedController[] {
    if (this.#mayDiffer) {
      const listed = this.#listed()
      // Texts of nodes are kept for as long as it is the same array.
      if (JSON.stringify(listed) !== JSON.stringify(this.#controllers)) this.#controllers = listed
      this.#mayDiffer = false
    }
    return this.#controllers
  }

  #listed(): readonly NamedController[] {
    const found = this.#noted.flatMap(({ name, address, isUnnamed }) => (isUnnamed ? [] : { name, address }))
    return found.length > 0 ? found.sort((a, b) => compareNames(a.name, b.name)) : [this.o.self]
  }

  /** The entries of controllers. */
  get #noted(): (Noted & { readonly name: string })[] {
    return [...this.#entries.values()].flatMap(entry =>
      'address' in entry ? { ...entry, name: entry.key.slice(CONTROLLER.length) } : []
    )
  }

  /** The controllers that are not there any more, until `remove`, the last one first; `since`: ISO 8601, UTC. */
  get gone(): readonly (Shown & { readonly since: string })[] {
    return this.#noted
      .flatMap(({ name, address, port, ini, goneMs }) =>
        goneMs === undefined ? [] : { name, address, port, ini, since: new Date(goneMs).toISOString() }
      )
      .sort((a, b) => (a.since < b.since ? 1 : -1))
  }

  /** Forgets a controller that is gone; false where there is none of that name. Rejects with StoreError where nobody knows whether that is stored. */
  async remove(name: string): Promise<boolean> {
    if (!this.gone.some(one => one.name === name)) return false
    this.#decide(`${CONTROLLER}${name}`, undefined)
    this.heard('a controller')
    await this.#store()
    return true
  }

  /** The serial of each zone, as the one that writes has told it. */
  get zones(): Record<string, Told> {
    const zones: Record<string, Told> = {}
    for (const entry of this.#entries.values()) {
      // What this one decided and could not store does not count once another one writes.
      if (this.isFollowing && this.#unsure.has(entry.key)) continue
      if ('mark' in entry) zones[entry.key.slice(ZONE.length)] = { serial: entry.serial, mark: entry.mark }
    }
    return zones
  }

  /** Agrees on the zones of a name server, whose changes are gathered for so many milliseconds. */
  agreed(gatherMs: number): AgreedZones {
    return new AgreedZones(this, { gatherMs, log: this.o.log })
  }

  /** Decides serials; resolves once all that was decided is stored. Rejects with StoreError where it is not, or nobody knows. */
  async tell(zones: Readonly<Record<string, Told>>): Promise<void> {
    // In memory first: what may be stored already is never replaced by what was before.
    for (const [zone, { serial, mark }] of Object.entries(zones))
      this.#decide(`${ZONE}${zone}`, { serial, mark })
    await this.#store()
  }

  /** This controller writes from now on, or another one does. */
  roleChanged(): void {
    this.#looking.wake()
  }

  async close(): Promise<void> {
    await this.#looking.close()
    await this.#records.close()
  }

  #decide(key: string, what: Told | Omit<Noted, 'key'> | undefined): void {
    this.#mayDiffer = true
    if (what) this.#entries.set(key, { key, ...what })
    else this.#entries.delete(key)
    this.#unsure.add(key)
  }

  async #store(): Promise<void> {
    await Promise.all(
      [...this.#unsure].map(async key => {
        await this.#records.append({ key })
        this.#unsure.delete(key)
      })
    )
  }

  /** The one that writes notes who is there. */
  async #keepControllers(): Promise<void> {
    if (this.isFollowing) return
    const before = this.controllers
    const others = this.o.others()
    const nowMs = this.o.now()
    const there = new Set<string>()
    for (const { name, address, port, ini } of [...(others ?? []), this.o.self].filter(isNamed)) {
      const key = `${CONTROLLER}${name}`
      there.add(key)
      const known = this.#entries.get(key) as Partial<Noted> | undefined
      const isSame = known?.address === address && known.port === port && known.ini === ini
      if (isSame && known.goneMs === undefined && Math.abs(nowMs - Number(known.seenMs)) < DAY_MS) continue
      this.#decide(key, { address, port, ini, seenMs: nowMs })
    }
    for (const { name: _, ...entry } of others ? this.#noted : []) {
      const isUnnamed = nowMs - entry.seenMs >= GONE_MS
      if (there.has(entry.key) || (entry.goneMs !== undefined && isUnnamed === entry.isUnnamed)) continue
      this.#decide(entry.key, { ...entry, goneMs: entry.goneMs ?? nowMs, isUnnamed })
    }
    for (const { name } of this.gone.slice(MOST_GONE)) this.#decide(`${CONTROLLER}${name}`, undefined)
    if (this.controllers !== before) this.heard('a controller')
    await this.#store()
  }

  #memory(): SharedMemory<Changed> {
    const entries = this.#entries
    return {
      namesIn: ({ key }) => [key],
      waits: () => false,
      names: () => entries.keys(),
      of: key => [entries.get(key) ?? []].flat(),
      take: (key, [record]) => {
        this.#mayDiffer = true
        this.#unsure.delete(key)
        if (record === undefined) entries.delete(key)
        else entries.set(key, entryIn(key, record))
        this.heard(key.startsWith(ZONE) ? 'a zone' : 'a controller')
      },
      reset: () => {
        this.#mayDiffer = true
        entries.clear()
        this.#unsure.clear()
      }
    }
  }
}

/** An entry as it is stored. Throws Error for what is none. */
function entryIn(key: string, record: object): Entry {
  const { serial, mark, address, seenMs, port, ini, goneMs, isUnnamed } = record as Record<string, unknown>
  if (key.startsWith(ZONE) && isSerial(serial) && typeof mark === 'string') return { key, serial, mark }
  if (typeof address === 'string' && typeof seenMs === 'number')
    if (key.startsWith(CONTROLLER) && isNamed({ name: key.slice(CONTROLLER.length), address }))
      return {
        ...{ key, address, seenMs, port: Number(port ?? 0), ini: String(ini ?? '') },
        isUnnamed: isUnnamed === true,
        ...(Number.isFinite(new Date(goneMs as number).getTime()) ? { goneMs: Number(goneMs) } : {})
      }
  throw new Error('neither a zone nor a controller')
}

/** What another controller says of itself comes into zones. */
const isNamed = ({ name, address }: NamedController) => nameRule.test(name) && isIP(address) !== 0

const isSerial = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < 2 ** 32
