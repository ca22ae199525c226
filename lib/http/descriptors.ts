import { readdirSync, readFileSync } from 'node:fs'

/** Minimum and maximum of descriptors reserved for files of the store, logs and programs. */
const LEAST_RESERVE = 48
const MOST_RESERVE = 512

/** One in this many descriptors is for refusals: in a storm hundreds come before the first is answered. */
const REFUSED_PART = 32

/** The share of clients in the process's file descriptors. */
export interface Share {
  /** Connections and files being sent, together. */
  readonly connections: number
  /** How many of them may be files: a client that does not read its file holds two descriptors. */
  readonly downloads: number
  /** How many more connections may be held to refuse them with Retry-After. */
  readonly crowded: number
}

/** Divides the descriptors left after start-up (rules 2.15). Infinity if there is no known limit. */
export function descriptorShare(): Share {
  try {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    if (limit !== undefined) return share(Number(limit), readdirSync('/proc/self/fd').length)
  } catch {
    // Without /proc the limit is unknown.
  }
  return { connections: Number.POSITIVE_INFINITY, downloads: Number.POSITIVE_INFINITY, crowded: 0 }
}

/** `used` of `limit` descriptors are taken. */
export function share(limit: number, used: number): Share {
  const reserve = Math.max(LEAST_RESERVE, Math.min(Math.floor(limit / 16), MOST_RESERVE))
  const left = Math.max(16, limit - used - reserve)
  const kept = Number.isFinite(limit) ? Math.max(0, limit - used - left) : 0
  const told = Number.isFinite(left) ? Math.floor(left / REFUSED_PART) : 0
  return {
    connections: left - told,
    downloads: Math.floor(left / 4),
    crowded: told + Math.floor(kept / 4)
  }
}
