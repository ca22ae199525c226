import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isLeftover, readRegularFileSync } from '../../disk/file.js'
import type { DiskStep } from '../../disk/steps.js'
import { type Problem, reasonOf } from '../errors.js'
import { decodeUtf8, JsonError, parseJson } from '../json.js'
import { assertStorable, INTENTS, type StoredState, type Write } from '../medium.js'

/**
 * A state directory as read, with unfinished intents applied; nothing is written. Synchronous: several times
 * faster for 100,000 small files, and nothing is served before it ends.
 */
export class StoredFiles implements StoredState {
  readonly #intents: Intents
  /** Texts promised by intents, by type and name; undefined: no file. */
  readonly #intended = new Map<string, Map<string, string | undefined>>()
  /** Names of objects with a file, by type. */
  readonly #files = new Map<string, Set<string>>()
  readonly #leftovers: string[]
  readonly #foreign: Problem[] = []

  constructor(private readonly directory: string) {
    this.#intents = readIntents(directory)
    this.#leftovers = [...this.#intents.leftovers]
    for (const write of this.#intents.intents.flatMap(({ writes }) => writes)) this.#applyIntent(write)
  }

  get intents(): readonly Intent[] {
    return this.#intents.intents
  }

  /** Files left by interrupted atomic writes, of the listed types; safe to remove while no daemon runs. */
  get leftovers(): readonly string[] {
    return this.#leftovers
  }

  get foreign(): readonly Problem[] {
    return this.#foreign
  }

  problems(types?: ReadonlySet<string>): readonly Problem[] {
    const { intents, problems } = this.#intents
    return types ? [...problems, ...ofUnknownType(this.directory, intents, types)] : problems
  }

  names(type: string): Iterable<string> {
    const names = new Set(this.#filesOf(type))
    for (const [name, text] of this.#intended.get(type) ?? [])
      if (text === undefined) names.delete(name)
      else names.add(name)
    return names
  }

  text(type: string, name: string): string | undefined {
    const promised = this.#intended.get(type)
    if (promised?.has(name)) return promised.get(name)
    if (!this.#filesOf(type).has(name)) return undefined
    return decodeUtf8(readRegularFileSync(objectFile(this.directory, type, name)))
  }

  place(type?: string, name?: string): string {
    if (type === undefined) return this.directory
    return name === undefined ? `${this.directory}/${type}` : objectFile(this.directory, type, name)
  }

  #applyIntent({ type, name, text }: Write): void {
    const promised = this.#intended.get(type) ?? new Map<string, string | undefined>()
    this.#intended.set(type, promised.set(name, text))
  }

  #filesOf(type: string): ReadonlySet<string> {
    const known = this.#files.get(type)
    if (known) return known
    const names = new Set<string>()
    for (const fileName of listing(this.place(type))) {
      const entry = entryOf(fileName)
      const file = `${this.place(type)}/${fileName}`
      if (typeof entry !== 'string') names.add(entry.object)
      else if (entry === 'leftover') this.#leftovers.push(file)
      else if (entry === 'foreign') this.#foreign.push({ file, message: 'not a file of the store' })
    }
    this.#files.set(type, names)
    return names
  }
}

/** Size of a piece of an intent's text, which as a whole may exceed the length of a string. */
const PIECE_CHARACTERS = 128 * 1024
const [HEAD, TAIL] = ['{ "writes": [\n', '\n] }\n']

/** A committed change whose object files may not be written yet. */
export interface Intent {
  readonly number: number
  readonly writes: readonly Write[]
}

/** The directory of intents, in the order of numbers. */
interface Intents {
  readonly intents: readonly Intent[]
  /** Names of files left by interrupted atomic writes. */
  readonly leftovers: readonly string[]
  readonly problems: readonly Problem[]
}

/** Yields the text of an intent file in pieces, with one write per line. */
export function* intentText(writes: Intent['writes']): Generator<string> {
  let piece = HEAD
  for (const [i, { type, name, text }] of writes.entries()) {
    piece += `${i > 0 ? ',\n' : ''}${JSON.stringify({ type, name, text: text ?? null })}`
    if (piece.length < PIECE_CHARACTERS) continue
    yield piece
    piece = ''
  }
  yield piece + TAIL
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

/** Reads the intents of a state directory. A damaged one is a problem: its promises are unknown. */
export function readIntents(directory: string): Intents {
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
function ofUnknownType(directory: string, intents: readonly Intent[], types: ReadonlySet<string>): Problem[] {
  return intents.flatMap(({ number, writes }) => {
    const position = writes.findIndex(({ type }) => !types.has(type))
    if (position < 0) return []
    return [{ file: intentFile(directory, number), message: damaged(unknownType(position)) }]
  })
}

const damaged = (reason: string) => `a damaged intent: ${reason}`
const unknownType = (position: number) => `write ${position} has an unknown type`

/** Lists a directory, sorted; empty if it is missing. */
function listing(directory: string): string[] {
  try {
    return readdirSync(directory).sort()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return []
    throw error
  }
}

function parseWrites(json: unknown): Intent['writes'] {
  const writes = isRecord(json) ? json.writes : undefined
  if (!Array.isArray(writes)) throw new Error('"writes" is no list')
  return writes.map((write: unknown, position) => {
    if (!isRecord(write)) throw new Error(`write ${position} is no object`)
    const { type, name, text } = write
    if (typeof type !== 'string') throw new Error(unknownType(position))
    if (typeof name !== 'string') throw new Error(`write ${position} has no name`)
    assertStorable(name)
    if (typeof text !== 'string' && text !== null) throw new Error(`write ${position} has no text`)
    return { type, name, text: text ?? undefined }
  })
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

/** `<directory>/<type>/<name>.json`; without `join`, which would take 5 % of a large start. */
export function objectFile(directory: string, type: string, name: string): string {
  return `${directory}/${type}/${name}.json`
}

/** `<directory>/intents/<number>.json`, zero-padded, so that a listing is in order. */
export function intentFile(directory: string, number: number): string {
  return join(directory, INTENTS, `${String(number).padStart(12, '0')}.json`)
}

/** The step that writes an object's file. */
export const fileStep = (file: string, text: string | undefined): DiskStep =>
  text === undefined ? { remove: file } : { replace: file, text }

/** A directory entry: an object, a leftover of an interrupted atomic write, an editor's file, or foreign. */
export type Entry = { object: string } | 'leftover' | 'ignored' | 'foreign'

/** Classifies a file in a type's directory by its name. */
function entryOf(fileName: string): Entry {
  if (isLeftover(fileName)) return 'leftover'
  if (fileName.startsWith('.') || fileName.endsWith('~')) return 'ignored'
  return fileName.endsWith('.json') ? { object: fileName.slice(0, -'.json'.length) } : 'foreign'
}
