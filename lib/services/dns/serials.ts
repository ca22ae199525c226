import { createHash } from 'node:crypto'
import type { Condition } from '../../monitor/health.js'
import type { SerialOf } from '../backend.js'

/** Zone → its last serial. */
export type Serials = Readonly<Record<string, number>>

const modulus = 2 ** 32

/** Returns a serial after `last`: the clock's seconds, or one more. They run in a circle (RFC 1982). */
export function nextSerial(last: number | undefined, nowMs: number): number {
  const clock = Math.floor(nowMs / 1000) % modulus
  return last === undefined || isAfter(clock, last) ? clock : (last + 1) % modulus
}

function isAfter(one: number, other: number): boolean {
  const ahead = (one - other + modulus) % modulus
  return ahead > 0 && ahead < modulus / 2
}

const later = (one: number | undefined, other: number | undefined) =>
  one === undefined || (other !== undefined && isAfter(other, one)) ? other : one

/** Returns the serial in the text of a zone; undefined where there is none. */
function serialIn(text: string | undefined): number | undefined {
  const [, digits] = /\sSOA\s+\S+\s+\S+\s+\(?\s*(\d{1,10})\s/.exec(text ?? '') ?? []
  const serial = Number(digits)
  return digits !== undefined && serial < modulus ? serial : undefined
}

/** The serial that the leader gave a zone, and the digest of its file with it, as etcd stores them. */
export interface ZoneSerial {
  readonly serial: number
  readonly mark: string
}

/** The digest of a zone's file: equal digests are equal bytes. */
export const digestOf = (text: string): string => createHash('sha256').update(text).digest('base64url')

/** Input of a rendering where controllers share the objects: plain data, as it goes to another thread. */
export interface ZonesJob {
  /** Whether this controller decides on new serials; the others take them. */
  readonly decides: boolean
  readonly stored: Readonly<Record<string, ZoneSerial>>
}

/** How the zones of a rendering compare with the stored ones. */
export interface ZonesFound {
  readonly decides: boolean
  /** The leader's new serials: to be stored before they are in force. */
  readonly decided: Record<string, ZoneSerial>
  /** A follower's zones that are not the leader's → whether their files would change. */
  readonly unlike: Record<string, boolean>
  /** A follower's zones that are the leader's, with a later serial. */
  readonly ahead: string[]
}

/** Gives zones equal serials on all controllers that share the objects. */
export interface SerialAgreement {
  /** Returns the input of a rendering. */
  job(): ZonesJob
  /**
   * Takes the result of a rendering that took `renderMs`. Resolves once its serials hold, with the time (ms)
   * until the next rendering where a zone has to wait. Rejects with StoreError if serials cannot be stored.
   */
  agree(found: ZonesFound, renderMs: number): Promise<number | undefined>
  readonly condition: Condition
}

/**
 * Gives zones their serials. A zone keeps its serial while its text stays the same, and no serial gets a
 * second text. The last serial is the later one of `known` and the file in force, as notes may be lost.
 * `given` is to be noted. With `job`, all controllers take the serials of the leader (rules 11.18).
 */
export function serials(
  known: Serials,
  nowMs: number,
  inForce: (path: string) => string | undefined,
  job?: ZonesJob
): { readonly of: SerialOf; readonly given: Record<string, number>; readonly found: ZonesFound } {
  const given: Record<string, number> = { ...known }
  const { decides = true, stored = {} } = job ?? {}
  const found: ZonesFound = { decides, decided: {}, unlike: {}, ahead: [] }
  const of: SerialOf = (name, path, body) => {
    const text = inForce(path)
    const made = (serial: number) => ({ serial, text: body(serial) })
    const own = later(Object.hasOwn(known, name) ? known[name] : undefined, serialIn(text))
    const shared = Object.hasOwn(stored, name) ? stored[name] : undefined
    const last = later(own, shared?.serial)
    const theirs = shared && made(shared.serial)
    const isAlike = theirs !== undefined && digestOf(theirs.text) === shared?.mark
    const isTaken = text !== theirs?.text && serialIn(text) === shared?.serial
    const isLast = shared !== undefined && shared.serial === last
    const unchanged = () => {
      const there = own === undefined || (decides && isLast) ? undefined : made(own)
      return there?.text === text ? there : undefined
    }
    // A follower adds one alone, so that the leader's next serial, which goes by the clock, is later.
    const next = () => made(decides || last === undefined ? nextSerial(last, nowMs) : (last + 1) % modulus)
    const isTheirs = isAlike && isLast && !isTaken
    const chosen = isTheirs ? theirs : (unchanged() ?? next())
    if (decides && job && !isTheirs)
      found.decided[name] = { serial: chosen.serial, mark: digestOf(chosen.text) }
    if (!decides && !isAlike) found.unlike[name] = chosen.text !== text
    if (!decides && isAlike && !isTheirs) found.ahead.push(name)
    if (chosen.text !== text) given[name] = chosen.serial
    return chosen.text
  }
  return { of, given, found }
}
