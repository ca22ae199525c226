import { join } from 'node:path'
import type { Problem } from '../../base/errors.js'
import { isObject } from '../../base/json.js'
import { readRegularFileSync } from '../../disk/file.js'
import { reasonOf } from '../errors.js'
import { decodeUtf8, JsonError, parseJson } from '../json.js'
import { assertStorable, INTENTS, type Write } from '../medium.js'
import { entryOf, listing } from './listing.js'

// Releases before the log wrote a change of several files as an intent first. A start takes these over.

const [HEAD, TAIL] = ['{ "writes": [\n', '\n] }\n']

/** A committed change whose object files may not be written yet. */
export interface Intent {
  readonly number: number
  readonly writes: readonly Write[]
}

/** Parses an intent file line by line, as it may exceed the length of a string. */
function jsonIn(bytes: Buffer): unknown {
  const isOurs =
    bytes.length >= HEAD.length + TAIL.length && bytes.subarray(0, HEAD.length).equals(Buffer.from(HEAD))
  // Files edited by hand are parsed as a whole.
  if (!isOurs || !bytes.subarray(-TAIL.length).equals(Buffer.from(TAIL))) return parseJson(decodeUtf8(bytes))
  const writes: unknown[] = []
  const last = bytes.length - TAIL.length
  for (let [start, line] = [HEAD.length, 2]; start < last; line++) {
    const end = Math.min(last, (bytes.indexOf(10, start) + 1 || last + 1) - 1)
    const text = decodeUtf8(bytes.subarray(start, end))
    try {
      writes.push(parseJson(end < last && text.endsWith(',') ? text.slice(0, -1) : text))
    } catch (error) {
      throw new JsonError(reasonOf(error), line)
    }
    start = end + 1
  }
  return { writes }
}

/**
 * Reads the intents of a state directory, in the order of numbers. A damaged one is a problem: its promises
 * are unknown. `leftovers`: files that interrupted atomic writes left.
 */
export function readIntents(directory: string) {
  const intents: Intent[] = []
  const leftovers: string[] = []
  const problems: Problem[] = []
  for (const fileName of listing(join(directory, INTENTS))) {
    const file = join(directory, INTENTS, fileName)
    const entry = entryOf(fileName)
    if (entry === 'leftover') leftovers.push(file)
    if (typeof entry === 'string') continue
    try {
      if (!/^\d{12}$/.test(entry.object)) throw new Error('the name of an intent is 12 digits')
      const writes = parseWrites(jsonIn(readRegularFileSync(file)))
      intents.push({ number: Number(entry.object), writes })
    } catch (error) {
      const line = error instanceof JsonError ? { line: error.line } : {}
      problems.push({ file, ...line, message: damaged(reasonOf(error)) })
    }
  }
  intents.sort((a, b) => a.number - b.number)
  return { intents, leftovers, problems }
}

/** Returns the intents with an unknown type as problems. */
export function ofUnknownType(
  directory: string,
  intents: readonly Intent[],
  types: ReadonlySet<string>
): Problem[] {
  return intents.flatMap(({ number, writes }) => {
    const position = writes.findIndex(({ type }) => !types.has(type))
    if (position < 0) return []
    return [{ file: intentFile(directory, number), message: damaged(unknownType(position)) }]
  })
}

const damaged = (reason: string) => `a damaged intent: ${reason}`
const unknownType = (position: number) => `write ${position} has an unknown type`

function parseWrites(json: unknown): Intent['writes'] {
  const writes = isObject(json) ? json.writes : undefined
  if (!Array.isArray(writes)) throw new Error('"writes" is no list')
  return writes.map((write: unknown, position) => {
    if (!isObject(write)) throw new Error(`write ${position} is no object`)
    const { type, name, text } = write
    if (typeof type !== 'string') throw new Error(unknownType(position))
    if (typeof name !== 'string') throw new Error(`write ${position} has no name`)
    assertStorable(name)
    if (typeof text !== 'string' && text !== null) throw new Error(`write ${position} has no text`)
    return { type, name, text: text ?? undefined }
  })
}

/** `<directory>/intents/<number>.json`, zero-padded, so that a listing is in order. */
export function intentFile(directory: string, number: number): string {
  return join(directory, INTENTS, `${String(number).padStart(12, '0')}.json`)
}
