import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { readRegularFileSync } from '../disk/regular-file.js'
import type { Problem } from './errors.js'
import { reasonOf } from './errors.js'
import { decodeUtf8, JsonError, parseJson } from './json.js'
import { entryOf, INTENTS, type Write } from './paths.js'

/** A change that is committed as a whole; its objects' files may not be written yet. */
export interface Intent {
  readonly number: number
  readonly writes: readonly Omit<Write, 'textBefore'>[]
}

/** What the directory of the intents holds, in number order. */
export interface Intents {
  readonly intents: readonly Intent[]
  /** Names of files that an interrupted atomic write left. */
  readonly leftovers: readonly string[]
  readonly problems: readonly Problem[]
}

/** Makes the text of an intent file, write by write. */
export function* intentText(writes: Intent['writes']): Generator<void, string> {
  const lines: string[] = []
  for (const { type, name, text } of writes)
    yield void lines.push(JSON.stringify({ type, name, text: text ?? null }))
  return `{ "writes": [\n${lines.join(',\n')}\n] }\n`
}

/**
 * Reads the intents in a state directory. A damaged one is a problem: what it promised is unknown; without `types`, a type
 * that nobody knows is none.
 */
export function readIntents(directory: string, types?: ReadonlySet<string>): Intents {
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
      const writes = parseWrites(parseJson(decodeUtf8(readRegularFileSync(file))), types)
      intents.push({ number: Number(entry.object), writes })
    } catch (error) {
      const line = error instanceof JsonError ? { line: error.line } : {}
      problems.push({ file, ...line, message: `a damaged intent: ${reasonOf(error)}` })
    }
  }
  intents.sort((a, b) => a.number - b.number)
  return { intents, leftovers, problems }
}

/** The names in a directory, sorted; none when it is missing. */
export function listing(directory: string): string[] {
  try {
    return readdirSync(directory).sort()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return []
    throw error
  }
}

function parseWrites(json: unknown, types?: ReadonlySet<string>): Intent['writes'] {
  const writes = isRecord(json) ? json.writes : undefined
  if (!Array.isArray(writes)) throw new Error('"writes" is no list')
  return writes.map((write: unknown, position) => {
    if (!isRecord(write)) throw new Error(`write ${position} is no object`)
    const { type, name, text } = write
    if (typeof type !== 'string' || (types && !types.has(type)))
      throw new Error(`write ${position} has an unknown type`)
    if (typeof name !== 'string') throw new Error(`write ${position} has no name`)
    if (typeof text !== 'string' && text !== null) throw new Error(`write ${position} has no text`)
    return { type, name, text: text ?? undefined }
  })
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
