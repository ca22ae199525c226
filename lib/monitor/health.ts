import type { Jobs } from '../jobs/jobs.js'

/** What one part of the daemon says of itself. */
export interface Condition {
  readonly ok: boolean
  readonly reason: string
}

/** How a service is, and since when (ISO 8601, UTC). */
export interface ServiceState {
  readonly status: 'ok' | 'failed'
  /** '' when well. */
  readonly reason: string
  readonly since: string
}

const lookMs = 5_000

/** The state of each service and since when it has it (rules 6.3), also while nobody asks. */
export class Health {
  readonly #last = new Map<string, ServiceState>()
  readonly #timer: NodeJS.Timeout

  /** `services`: the parts of each, by its name; it is well when all of them are. Looked at every `every` ms. */
  constructor(
    readonly services: Readonly<Record<string, readonly (() => Condition)[]>>,
    readonly now: () => number,
    every = lookMs
  ) {
    this.all()
    this.#timer = setInterval(() => this.all(), every).unref()
  }

  close(): void {
    clearInterval(this.#timer)
  }

  /** Every service's state, by name. */
  all(): Record<string, ServiceState> {
    return Object.fromEntries(
      Object.keys(this.services).flatMap(name => {
        const state = this.of(name)
        return state ? [[name, state]] : []
      })
    )
  }

  /** A service's state; undefined for an unknown name. */
  of(name: string): ServiceState | undefined {
    if (!Object.hasOwn(this.services, name)) return undefined
    const bad = this.services[name]?.map(part => part()).filter(({ ok }) => !ok) ?? []
    const status = bad.length === 0 ? 'ok' : 'failed'
    const reason = bad.map(part => part.reason).join('; ')
    const last = this.#last.get(name)
    if (last?.status === status && last.reason === reason) return last
    // A failure with another reason is still the same failure.
    const since = last?.status === status ? last.since : new Date(this.now()).toISOString()
    const state: ServiceState = { status, reason, since }
    this.#last.set(name, state)
    return state
  }
}

/** Whether at most `most` requests wait for others to end (rules 6.3). */
export function queueCondition(jobs: Pick<Jobs, 'records'>, most: number): Condition {
  const waiting = jobs.records().filter(({ state }) => state === 'queued').length
  const ok = waiting <= most
  return { ok, reason: ok ? '' : `more than ${most} requests wait to run` }
}
