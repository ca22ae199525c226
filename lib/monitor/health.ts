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

/** Keeps since when each service is as it is (contract, Monitor; decisions 6). */
export class Health {
  readonly #last = new Map<string, ServiceState>()

  /** `parts` of a service, by its name: it is well when all of them are. */
  constructor(
    readonly services: Readonly<Record<string, readonly (() => Condition)[]>>,
    readonly now: () => number
  ) {
    for (const name of Object.keys(services)) this.of(name)
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

  /** The service's state; undefined for a name nobody knows. */
  of(name: string): ServiceState | undefined {
    if (!Object.hasOwn(this.services, name)) return undefined
    const bad = this.services[name]?.map(part => part()).filter(({ ok }) => !ok) ?? []
    const status = bad.length === 0 ? 'ok' : 'failed'
    const reason = bad.map(part => part.reason).join('; ')
    const last = this.#last.get(name)
    if (last?.status === status && last.reason === reason) return last
    const state: ServiceState = { status, reason, since: new Date(this.now()).toISOString() }
    this.#last.set(name, state)
    return state
  }
}
