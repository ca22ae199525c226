import type { Log } from '../base/log.js'
import type { Condition } from '../monitor/health.js'
import type { SerialAgreement, ZoneSerial, ZonesFound, ZonesJob } from '../services/dns/serials.js'

/** The serials that controllers share. */
interface SharedSerials {
  /** Whether another controller decides on them. */
  readonly isReadOnly: boolean
  readonly zones: Readonly<Record<string, ZoneSerial>>
  /** Stores serials. Rejects with StoreError. */
  storeSerials(zones: Readonly<Record<string, ZoneSerial>>): Promise<void>
}

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
    private readonly shared: SharedSerials,
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
