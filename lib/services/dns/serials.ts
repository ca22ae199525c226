import type { SerialOf } from '../backend.js'

/** Zone → its last serial. */
export type Serials = Readonly<Record<string, number>>

const modulus = 2 ** 32

/**
 * The serial after `last`: the clock's seconds, or one more than `last` when the clock is not ahead of it (it was set
 * back, or the second is the same). Serials are compared in a circle (RFC 1982).
 */
export function nextSerial(last: number | undefined, nowMs: number): number {
  const clock = Math.floor(nowMs / 1000) % modulus
  return last === undefined || isAfter(clock, last) ? clock : (last + 1) % modulus
}

function isAfter(one: number, other: number): boolean {
  const ahead = (one - other + modulus) % modulus
  return ahead > 0 && ahead < modulus / 2
}

/** The serial in the text of a zone; undefined where there is none. */
function serialIn(text: string | undefined): number | undefined {
  const [, digits] = /\sSOA\s+\S+\s+\S+\s+\(?\s*(\d{1,10})\s/.exec(text ?? '') ?? []
  const serial = Number(digits)
  return digits !== undefined && serial < modulus ? serial : undefined
}

/**
 * Gives zones their serials. A zone keeps its serial while its text stays the same. The last serial is the known one,
 * or that of the file in force where it is later, as what was remembered may be lost or old. `given` is what to
 * remember from then on.
 */
export function serials(
  known: Serials,
  nowMs: number,
  inForce: (path: string) => string | undefined
): { readonly of: SerialOf; readonly given: Record<string, number> } {
  const given: Record<string, number> = { ...known }
  const of: SerialOf = (zone, path, body) => {
    const text = inForce(path)
    const noted = Object.hasOwn(known, zone) ? known[zone] : undefined
    const written = serialIn(text)
    const last = noted === undefined || (written !== undefined && isAfter(written, noted)) ? written : noted
    const kept = last === undefined ? undefined : body(last)
    if (kept !== undefined && kept === text) return kept
    const next = nextSerial(last, nowMs)
    given[zone] = next
    return body(next)
  }
  return { of, given }
}
