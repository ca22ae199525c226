import type { Log } from '../../log.js'
import type { Condition } from '../../monitor/health.js'
import type { Told, ZonesFound, ZonesJob } from './serials.js'

/** Who decides on serials, and hears of what is decided. */
interface Decided {
  readonly isFollowing: boolean
  readonly zones: Readonly<Record<string, Told>>
  tell(zones: Readonly<Record<string, Told>>): Promise<void>
}

interface AgreedZonesOptions {
  /** `[dns] gather`, in milliseconds. */
  readonly gatherMs: number
  readonly log: Pick<Log, 'warn'>
  /** Milliseconds that only grow. */
  readonly ticks?: () => number
  /** How long the one that writes has for its own rendering, beside what that takes here. */
  readonly patienceMs?: number
}

const PATIENCE_MS = 30_000
/** The other machine may be slower than this one, and begin later. */
const TIMES_SLOWER = 3

/**
 * Gives zones the serials of the controller that writes. One that follows takes a serial where its text is that one's, and waits a
 * moment where it is not. What stays unlike gets a serial of its own.
 */
export class AgreedZones {
  readonly #ticks: () => number
  /** Zones that are not those of the one that writes, and since when; -Infinity once a rendering was told to wait no longer. */
  #unlike = new Map<string, number>()
  #ahead: readonly string[] = []
  readonly #warned = new Set<string>()
  #renderMs = 0

  constructor(
    private readonly decided: Decided,
    private readonly o: AgreedZonesOptions
  ) {
    this.#ticks = o.ticks ?? (() => performance.now())
  }

  /** What a rendering has to know. */
  job(): ZonesJob {
    const { isFollowing, zones } = this.decided
    const alone = this.#alone
    // A rendering that takes longer than the one before makes the wait longer. It does not undo what it was told.
    for (const zone of alone) this.#unlike.set(zone, -Infinity)
    return { writes: !isFollowing, told: zones, alone }
  }

  /**
   * Takes what a rendering has found, and how long it took. Resolves once its serials hold, and with how long to wait before it is
   * rendered again where it cannot be put in force yet. Rejects with StoreError where serials cannot be stored.
   */
  async agree(found: ZonesFound, renderMs: number): Promise<number | undefined> {
    this.#renderMs = renderMs
    const now = this.#ticks()
    this.#ahead = found.ahead
    this.#unlike = new Map(found.unlike.map(zone => [zone, this.#unlike.get(zone) ?? now]))
    for (const zone of this.#warned) if (!this.#unlike.has(zone)) this.#warned.delete(zone)
    for (const zone of this.#alone) this.#warn(zone)
    if (found.writes) await this.decided.tell(found.decided)
    if (found.writes || found.waiting.length === 0) return undefined
    const since = found.waiting.map(zone => this.#unlike.get(zone) ?? now)
    return Math.max(50, Math.max(...since) + this.#patienceMs - now)
  }

  /** Which zones are not those of the one that writes. */
  get condition(): Condition {
    const alone = this.#alone
    if (alone.length > 0) return { ok: false, reason: `${listed(alone)} ${APART}` }
    if (this.#ahead.length === 0) return { ok: true, reason: '' }
    return {
      ok: true,
      reason: `${listed(this.#ahead)} has a later serial here than on the controller that writes, until it changes`
    }
  }

  get #patienceMs(): number {
    const { patienceMs = PATIENCE_MS, gatherMs } = this.o
    return patienceMs + gatherMs + TIMES_SLOWER * this.#renderMs
  }

  /** Zones that have been unlike for long enough. */
  get #alone(): string[] {
    const since = this.#ticks() - this.#patienceMs
    return [...this.#unlike].filter(([, from]) => from <= since).map(([zone]) => zone)
  }

  #warn(zone: string): void {
    if (this.#warned.has(zone)) return
    this.#warned.add(zone)
    this.o.log.warn(`DNS: zone ${zone} ${APART}`)
  }
}

const APART =
  'is not that of the controller that writes, and has a serial of its own here: give both the same templates, [dns] and [cluster]'

const listed = ([first, ...more]: readonly string[]) =>
  `zone ${first}${more.length > 0 ? ` (and ${more.length} more)` : ''}`
