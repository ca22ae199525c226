import { createHash } from 'node:crypto'
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

const later = (one: number | undefined, other: number | undefined) =>
  one === undefined || (other !== undefined && isAfter(other, one)) ? other : one

/** The serial in the text of a zone; undefined where there is none. */
function serialIn(text: string | undefined): number | undefined {
  const [, digits] = /\sSOA\s+\S+\s+\S+\s+\(?\s*(\d{1,10})\s/.exec(text ?? '') ?? []
  const serial = Number(digits)
  return digits !== undefined && serial < modulus ? serial : undefined
}

/** What the controller that writes has told of a zone: its serial, and the mark of its file with that serial. */
export interface Told {
  readonly serial: number
  readonly mark: string
}

/** The mark of a zone's file: equal marks are equal bytes. */
export const markOf = (text: string): string => createHash('sha256').update(text).digest('base64url')

/** What a rendering has to know where controllers share the objects. Plain data, as it goes to another thread. */
export interface ZonesJob {
  /** Whether this controller writes, and so decides. */
  readonly writes: boolean
  readonly told: Readonly<Record<string, Told>>
  /** Zones that have been unlike those of the one that writes for so long that they get serials of their own. */
  readonly alone: readonly string[]
}

/** What a rendering has found then, by the names of zones. */
export interface ZonesFound {
  readonly writes: boolean
  /** What the others have to be told before it is put in force. */
  readonly decided: Record<string, Told>
  /** Those of a controller that follows which are not those of the one that writes. */
  readonly unlike: string[]
  /** Those which are, but have a later serial. */
  readonly ahead: string[]
  /** Those that have changed, and the one that writes has not told of it so far: nothing can be put in force yet. */
  readonly waiting: string[]
}

/** A zone when it is rendered. */
interface Zone {
  readonly name: string
  /** The text in force. */
  readonly text: string | undefined
  /** Its last serial here. */
  readonly last: number | undefined
  readonly body: (serial: number) => string
}

/** Its text with a serial. */
interface Made {
  readonly serial: number
  readonly text: string
}

const made = ({ body }: Zone, serial: number): Made => ({ serial, text: body(serial) })
const isOf = ({ mark }: Told, { text }: Made) => markOf(text) === mark
/** Whether what is in force has that serial, and is something else. */
const isTaken = ({ text }: Zone, one: Made) => text !== one.text && serialIn(text) === one.serial

/** What is in force, where it is still right. */
function unchanged(zone: Zone): Made | undefined {
  const there = zone.last === undefined ? undefined : made(zone, zone.last)
  return there?.text === zone.text ? there : undefined
}

/**
 * Gives zones their serials. A zone keeps its serial while its text stays the same. The last serial is the known one,
 * or that of the file in force where it is later, as what was remembered may be lost or old. `given` is what to
 * remember from then on. With `job`, all controllers give a zone the serial of the one that writes (rules 11.18).
 */
export function serials(
  known: Serials,
  nowMs: number,
  inForce: (path: string) => string | undefined,
  job?: ZonesJob
): { readonly of: SerialOf; readonly given: Record<string, number>; readonly found: ZonesFound } {
  const given: Record<string, number> = { ...known }
  const { writes = true, alone = [] } = job ?? {}
  const found: ZonesFound = { writes, decided: {}, unlike: [], ahead: [], waiting: [] }
  const next = (zone: Zone, last: number | undefined) => made(zone, nextSerial(last, nowMs))
  /** Of the controller that writes. The others are told before it is put in force. */
  const decided = (zone: Zone, told: Told | undefined): Made => {
    const last = later(zone.last, told?.serial)
    if (told && told.serial === last) {
      const there = made(zone, last)
      if (isOf(told, there) && !isTaken(zone, there)) return there
    }
    // One that is later than what was told is in force here since before this controller wrote.
    const chosen = (told?.serial === last ? undefined : unchanged(zone)) ?? next(zone, last)
    if (job) found.decided[zone.name] = { serial: chosen.serial, mark: markOf(chosen.text) }
    return chosen
  }
  /** Not behind, and one more at most, so that the next serial of the one that writes, which goes by the clock, is later. */
  const beside = (zone: Zone, last: number | undefined): Made =>
    unchanged(zone) ?? (last === undefined ? next(zone, last) : made(zone, (last + 1) % modulus))
  /** Of a controller that follows. */
  const followed = (zone: Zone, told: Told | undefined): Made => {
    const theirs = told && made(zone, told.serial)
    if (!told || !theirs || !isOf(told, theirs)) {
      found.unlike.push(zone.name)
      const chosen = beside(zone, later(zone.last, told?.serial))
      if (chosen.text !== zone.text && !alone.includes(zone.name)) found.waiting.push(zone.name)
      return chosen
    }
    if (later(zone.last, told.serial) === told.serial && !isTaken(zone, theirs)) return theirs
    found.ahead.push(zone.name)
    return beside(zone, zone.last)
  }
  const choose = writes ? decided : followed
  const of: SerialOf = (name, path, body) => {
    const text = inForce(path)
    const noted = Object.hasOwn(known, name) ? known[name] : undefined
    const zone: Zone = { name, text, last: later(noted, serialIn(text)), body }
    const told = job && Object.hasOwn(job.told, name) ? job.told[name] : undefined
    const chosen = choose(zone, told)
    if (chosen.text !== text) given[name] = chosen.serial
    return chosen.text
  }
  return { of, given, found }
}
