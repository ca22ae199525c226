import ipaddr from 'ipaddr.js'

const windowMs = 60_000
const largestDelayMs = 1000
/** Failures in the window that cost nothing; the next login may be the fifth, and waits. */
const free = 4
const stepMs = 250

/**
 * Failed logins per source address in the last minute, and how long the address waits for them (rules 5.4):
 * nothing before the fifth, then a quarter of a second more with each up to one second. Remembers the
 * `capacity` addresses that failed last. An IPv6 host owns a /64, which counts as one address.
 */
export class Failures {
  readonly #now: () => number
  readonly #capacity: number
  /** Times of the last failures that matter, oldest first; addresses in the order of their last failure. */
  readonly #times = new Map<string, readonly number[]>()

  constructor(now: () => number, capacity = 10_000) {
    this.#now = now
    this.#capacity = capacity
  }

  /** Milliseconds that a login from this address waits before it is looked at. */
  delayMs(address: string): number {
    return Math.min(largestDelayMs, Math.max(0, (this.#recent(party(address)).length - free + 1) * stepMs))
  }

  /** Whether a login from this address failed in the last minute. */
  has(address: string): boolean {
    return this.#recent(party(address)).length > 0
  }

  add(address: string): void {
    const key = party(address)
    const kept = this.#recent(key).slice(-(free + largestDelayMs / stepMs))
    this.#times.delete(key)
    this.#times.set(key, [...kept, this.#now()])
    if (this.#times.size <= this.#capacity) return
    for (const oldest of this.#times.keys()) {
      this.#times.delete(oldest)
      return
    }
  }

  /** Addresses remembered. */
  get size(): number {
    return this.#times.size
  }

  #recent(key: string): readonly number[] {
    const now = this.#now()
    // A time ahead of the clock, which was set back, is of no known age and does not count.
    return (this.#times.get(key) ?? []).filter(time => time > now - windowMs && time <= now)
  }
}

/**
 * Addresses that take one turn together: the /24 of an IPv4 address, the /64 of an IPv6 one. A slash parts it from the /16 or
 * the /48 before it, whose networks share their turns.
 */
export const neighbours = (address: string) =>
  party(address)
    .replace(/^(\d+\.\d+)\.(\d+)\.\d+$/, '$1/$2')
    .replace(/^(\w+:\w+:\w+):(\w+)$/, '$1/$2')

/** The address, or the /64 of an IPv6 one. */
export function party(address: string): string {
  if (!ipaddr.IPv6.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}
