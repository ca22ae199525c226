import type { SerialOf } from '../backend.js'

/** Zone → the serial it was last given. */
export type Serials = Readonly<Record<string, number>>

const modulus = 2 ** 32

/**
 * The serial after one: the clock's seconds, or one more than the last where the clock has not come that far (it
 * stepped back, or twice in a second). Serials are compared in a circle (RFC 1982).
 */
export function nextSerial(last: number | undefined, nowMs: number): number {
  const clock = Math.floor(nowMs / 1000) % modulus
  if (last === undefined) return clock
  const ahead = (clock - last + modulus) % modulus
  return ahead > 0 && ahead < modulus / 2 ? clock : (last + 1) % modulus
}

/**
 * Gives zones their serials: a zone keeps its own while its text stays what is in force. `given` is what is to be
 * remembered then.
 */
export function serials(
  known: Serials,
  nowMs: number,
  inForce: (path: string) => string | undefined
): { readonly of: SerialOf; readonly given: Record<string, number> } {
  const given: Record<string, number> = { ...known }
  const of: SerialOf = (zone, path, body) => {
    const last = Object.hasOwn(known, zone) ? known[zone] : undefined
    const kept = last === undefined ? undefined : body(last)
    if (kept !== undefined && kept === inForce(path)) return kept
    const next = nextSerial(last, nowMs)
    given[zone] = next
    return body(next)
  }
  return { of, given }
}
