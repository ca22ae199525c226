import { isIP } from 'node:net'
import { Background } from '../base/background.js'
import type { Log } from '../base/log.js'
import { nameRule } from '../config/values.js'
import type { NamedController } from '../model/stored.js'
import type { Condition } from '../monitor/health.js'
import type { SerialAgreement, ZoneSerial, ZonesFound, ZonesJob } from '../services/dns/serials.js'
import { compareNames } from '../store/order.js'
import type { KeptRecords, OpenRecords, RecordedState } from '../store/records.js'

/** A stored zone or controller. */
type Entry = { readonly key: string } & (
  | ZoneSerial
  | {
      readonly address: string
      /** Last sight, in milliseconds since 1970; a day behind at most. */
      readonly seenMs: number
      readonly port: number
      readonly ini: string
      /** Start of its absence, in milliseconds since 1970; absent while it is there. */
      readonly goneMs?: number
      /** Zones no longer name it. */
      readonly isUnnamed?: boolean
    }
)
type StoredController = Extract<Entry, { address: string }>
/** Names the changed entry; its content is in memory. */
type ChangedKey = Pick<Entry, 'key'>

/** A controller with its port and the path of its ini. */
type ControllerInfo = NamedController & Pick<StoredController, 'port' | 'ini'>

interface SharedServicesOptions {
  readonly self: ControllerInfo
  /** The other controllers that are there now; undefined before the first look. */
  readonly others: () => readonly ControllerInfo[] | undefined
  readonly log: Log
  /** Milliseconds since 1970. */
  readonly now: () => number
}

const ZONE = 'zone/'
const CONTROLLER = 'controller/'
const LOOK_MS = 5_000
const RETRY_MS = { first: 1_000, longest: 60_000 }
const DAY_MS = 86_400_000
/** Zones no longer name a controller that was absent for so long. */
const UNNAMED_AFTER_MS = 7 * DAY_MS
/** Most absent controllers that are kept. */
const GONE_MAX = 100

/**
 * The state that controllers share for DHCP and DNS: the serial of each zone, and the controllers that zones
 * name. The leader decides and stores it; followers hear it.
 */
export class SharedServiceState {
  readonly #entries = new Map<string, Entry>()
  /** Keys of entries whose write failed or has no answer yet. */
  readonly #pendingWrites = new Set<string>()
  #controllers: readonly NamedController[] = []
  /** An entry has changed since `#controllers` was made. */
  #isStale = true
  #records!: KeptRecords<ChangedKey>
  readonly #presence: Background
  /** Called when an entry has changed; must not throw. */
  onChange: (what: 'a zone' | 'a controller') => void = () => {}

  private constructor(private readonly o: SharedServicesOptions) {
    this.#presence = new Background({
      work: () => this.#keepControllers(),
      everyMs: LOOK_MS,
      retryMs: RETRY_MS,
      onFailure: reason =>
        o.log.warn(`DNS: which controllers there are cannot be stored, and is tried again: ${reason}`)
    })
  }

  /** Reads the stored entries; `open` opens the records. */
  static async open(open: OpenRecords, options: SharedServicesOptions): Promise<SharedServiceState> {
    const shared = new SharedServiceState(options)
    shared.#records = await open(shared.#memory())
    // Runs before the first rendering: zones name this controller from the beginning.
    await shared.#presence.run().catch(() => {})
    return shared
  }

  /** Whether another controller decides, and this one takes what is stored. */
  get isReadOnly(): boolean {
    return this.#records.isReadOnly
  }

  /** Whether this controller lends the dynamic ranges, and another one can take over. */
  get hasSuccessor(): boolean {
    return !this.isReadOnly && (this.o.others() ?? []).length > 0
  }

  /** Returns the controllers that zones name, in natural order; the same array until they change. */
  get controllers(): readonly NamedController[] {
    if (this.#isStale) {
      const listed = this.#listed()
      // Cached texts of nodes depend on the identity of the array.
      if (JSON.stringify(listed) !== JSON.stringify(this.#controllers)) this.#controllers = listed
      this.#isStale = false
    }
    return this.#controllers
  }

  #listed(): readonly NamedController[] {
    const found = this.#noted.flatMap(({ name, address, isUnnamed }) => (isUnnamed ? [] : { name, address }))
    return found.length > 0 ? found.sort((a, b) => compareNames(a.name, b.name)) : [this.o.self]
  }

  /** Returns the entries of controllers. */
  get #noted(): (StoredController & { readonly name: string })[] {
    return [...this.#entries.values()].flatMap(entry =>
      'address' in entry ? { ...entry, name: entry.key.slice(CONTROLLER.length) } : []
    )
  }

  /** Returns the absent controllers, the last seen first, until `remove`; `since`: ISO 8601, UTC. */
  get gone(): readonly (ControllerInfo & { readonly since: string })[] {
    return this.#noted
      .flatMap(({ name, address, port, ini, goneMs }) =>
        goneMs === undefined ? [] : { name, address, port, ini, since: new Date(goneMs).toISOString() }
      )
      .sort((a, b) => (a.since < b.since ? 1 : -1))
  }

  /** Forgets an absent controller; false where there is none. Rejects with StoreError if it is not stored. */
  async remove(name: string): Promise<boolean> {
    if (!this.gone.some(one => one.name === name)) return false
    this.#decide(`${CONTROLLER}${name}`, undefined)
    this.onChange('a controller')
    await this.#store()
    return true
  }

  /** Returns the leader's serial of each zone. */
  get zones(): Record<string, ZoneSerial> {
    const zones: Record<string, ZoneSerial> = {}
    for (const entry of this.#entries.values()) {
      // A follower must not use a serial that it decided as leader and could not store.
      if (this.isReadOnly && this.#pendingWrites.has(entry.key)) continue
      if ('mark' in entry) zones[entry.key.slice(ZONE.length)] = { serial: entry.serial, mark: entry.mark }
    }
    return zones
  }

  /** Makes the agreement on zones; `gatherMs`: how long their changes are gathered. */
  agreed(gatherMs: number): ZoneAgreement {
    return new ZoneAgreement(this, { gatherMs, log: this.o.log })
  }

  /** Stores the leader's serials, and all else that waits. Rejects with StoreError where that fails. */
  async storeSerials(zones: Readonly<Record<string, ZoneSerial>>): Promise<void> {
    // In memory first: a serial that may be stored is never replaced by an earlier one.
    for (const [zone, { serial, mark }] of Object.entries(zones))
      this.#decide(`${ZONE}${zone}`, { serial, mark })
    await this.#store()
  }

  /** Notes which controllers there are. */
  becameLeader(): void {
    this.#presence.wake()
  }

  async close(): Promise<void> {
    await this.#presence.close()
    await this.#records.close()
  }

  #decide(key: string, what: ZoneSerial | Omit<StoredController, 'key'> | undefined): void {
    this.#isStale = true
    if (what) this.#entries.set(key, { key, ...what })
    else this.#entries.delete(key)
    this.#pendingWrites.add(key)
  }

  async #store(): Promise<void> {
    await Promise.all(
      [...this.#pendingWrites].map(async key => {
        await this.#records.append({ key })
        this.#pendingWrites.delete(key)
      })
    )
  }

  /** Notes, as leader, which controllers are there. */
  async #keepControllers(): Promise<void> {
    if (this.isReadOnly) return
    const before = this.controllers
    const others = this.o.others()
    const nowMs = this.o.now()
    const there = new Set<string>()
    for (const { name, address, port, ini } of [...(others ?? []), this.o.self].filter(isNamed)) {
      const key = `${CONTROLLER}${name}`
      there.add(key)
      const known = this.#entries.get(key) as Partial<StoredController> | undefined
      const isSame = known?.address === address && known.port === port && known.ini === ini
      if (isSame && known.goneMs === undefined && Math.abs(nowMs - Number(known.seenMs)) < DAY_MS) continue
      this.#decide(key, { address, port, ini, seenMs: nowMs })
    }
    for (const { name: _, ...entry } of others ? this.#noted : []) {
      const isUnnamed = nowMs - entry.seenMs >= UNNAMED_AFTER_MS
      if (there.has(entry.key) || (entry.goneMs !== undefined && isUnnamed === entry.isUnnamed)) continue
      this.#decide(entry.key, { ...entry, goneMs: entry.goneMs ?? nowMs, isUnnamed })
    }
    for (const { name } of this.gone.slice(GONE_MAX)) this.#decide(`${CONTROLLER}${name}`, undefined)
    if (this.controllers !== before) this.onChange('a controller')
    await this.#store()
  }

  #memory(): RecordedState<ChangedKey> {
    const entries = this.#entries
    return {
      namesIn: ({ key }) => [key],
      appliesOnceStored: () => false,
      names: () => entries.keys(),
      recordsOf: key => [entries.get(key) ?? []].flat(),
      replaceRecords: (key, [record]) => {
        this.#isStale = true
        this.#pendingWrites.delete(key)
        if (record === undefined) entries.delete(key)
        else entries.set(key, entryIn(key, record))
        this.onChange(key.startsWith(ZONE) ? 'a zone' : 'a controller')
      },
      reset: () => {
        this.#isStale = true
        entries.clear()
        this.#pendingWrites.clear()
      }
    }
  }
}

/** Reads a stored entry. Throws Error for anything else. */
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

/** Names of other controllers come into zones. */
const isNamed = ({ name, address }: NamedController) => nameRule.test(name) && isIP(address) !== 0

const isSerial = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < 2 ** 32

interface ZoneAgreementOptions {
  /** `[dns] gather`, in milliseconds. */
  readonly gatherMs: number
  readonly log: Pick<Log, 'warn'>
  /** Milliseconds that only grow. */
  readonly ticks?: () => number
  /** Time of the leader for its own rendering, beside `TIMES_SLOWER` times that of this one. */
  readonly patienceMs?: number
}

const PATIENCE_MS = 30_000
/** The leader's machine may be slower than this one, and begin later. */
const TIMES_SLOWER = 3

/** Holds a follower's rendering back until the leader has stored the serials of its zones (rules 11.18). */
export class ZoneAgreement implements SerialAgreement {
  readonly #ticks: () => number
  /** Zones that are not the leader's, since when (ms); -Infinity: patience is over. */
  #unlike = new Map<string, number>()
  #ahead: readonly string[] = []
  #renderMs = 0

  constructor(
    private readonly shared: Pick<SharedServiceState, 'isReadOnly' | 'zones' | 'storeSerials'>,
    private readonly o: ZoneAgreementOptions
  ) {
    this.#ticks = o.ticks ?? (() => performance.now())
  }

  /** Returns the input of a rendering. */
  job(): ZonesJob {
    // Noted before the rendering: should it take longer than the last one, patience must not begin again.
    this.#overdue()
    return { decides: !this.shared.isReadOnly, stored: this.shared.zones }
  }

  /**
   * Takes the result of a rendering that took `renderMs`. Resolves once its serials hold, with the time (ms)
   * until the next rendering where a zone has to wait for the leader. Rejects with StoreError where serials
   * cannot be stored.
   */
  async agree(found: ZonesFound, renderMs: number): Promise<number | undefined> {
    const now = this.#ticks()
    this.#renderMs = renderMs
    this.#ahead = found.ahead
    const unlike = Object.entries(found.unlike)
    this.#unlike = new Map(unlike.map(([zone]) => [zone, this.#unlike.get(zone) ?? now]))
    if (found.decides) await this.shared.storeSerials(found.decided)
    const apart = this.#overdue()
    const waiting = unlike.flatMap(([zone, isChanged]) => (isChanged && !apart.includes(zone) ? zone : []))
    if (waiting.length === 0) return undefined
    const since = waiting.map(zone => this.#unlike.get(zone) ?? now)
    return Math.max(50, Math.max(...since) + this.#patienceMs - now)
  }

  /** Reports zones that are not the leader's. */
  get condition(): Condition {
    const apart = this.#overdue()
    if (apart.length > 0) return { ok: false, reason: `${listed(apart)} ${APART}` }
    return { ok: true, reason: this.#ahead.length === 0 ? '' : `${listed(this.#ahead)} ${AHEAD}` }
  }

  get #patienceMs(): number {
    const { patienceMs = PATIENCE_MS, gatherMs } = this.o
    return patienceMs + gatherMs + TIMES_SLOWER * this.#renderMs
  }

  /** Returns the zones that have not been the leader's for longer than patience; warns of each once. */
  #overdue(): string[] {
    const until = this.#ticks() - this.#patienceMs
    const zones = [...this.#unlike].flatMap(([zone, since]) => (since <= until ? zone : []))
    for (const zone of zones) {
      if (this.#unlike.get(zone) !== -Infinity) this.o.log.warn(`DNS: zone ${zone} ${APART}`)
      this.#unlike.set(zone, -Infinity)
    }
    return zones
  }
}

const APART =
  'is not that of the primary, and has a serial of its own here: ' +
  'give both the same templates, [dns] and [cluster]'
const AHEAD = 'has a later serial here than on the primary, until it changes'

const listed = ([first, ...more]: readonly string[]) =>
  `zone ${first}${more.length > 0 ? ` (and ${more.length} more)` : ''}`
