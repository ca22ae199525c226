import { readdirSync, readFileSync } from 'node:fs'

/** Kept for the files of the store, for logs and for programs: at least so many descriptors, at most so many. */
const LEAST_RESERVE = 48
const MOST_RESERVE = 512

/** This part of the descriptors of clients is for those who are told to come back: in a storm hundreds come before the first is answered. */
const TOLD_PART = 32

/** What clients may take of the process's file descriptors. */
export interface Share {
  /** Connections and the files being sent, together. */
  readonly connections: number
  /** How many of them may be files: a client that does not read its file keeps two descriptors. */
  readonly downloads: number
  /** How many connections more may be told to come back later. */
  readonly crowded: number
}

/**
 * Divides the descriptors that are left when all else is started, by the limit that the process has now (rules 2.15).
 * Without a limit, or if the system does not tell it, both are Infinity.
 */
export function descriptorShare(): Share {
  try {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    if (limit !== undefined) return share(Number(limit), readdirSync('/proc/self/fd').length)
  } catch {
    // It is not there: then nothing is known of a limit.
  }
  return { connections: Number.POSITIVE_INFINITY, downloads: Number.POSITIVE_INFINITY, crowded: 0 }
}

/** Of `limit` descriptors `used` are taken. */
export function share(limit: number, used: number): Share {
  const reserve = Math.max(LEAST_RESERVE, Math.min(Math.floor(limit / 16), MOST_RESERVE))
  const left = Math.max(16, limit - used - reserve)
  const kept = Number.isFinite(limit) ? Math.max(0, limit - used - left) : 0
  const told = Number.isFinite(left) ? Math.floor(left / TOLD_PART) : 0
  return {
    connections: left - told,
    downloads: Math.floor(left / 4),
    crowded: told + Math.floor(kept / 4)
  }
}
