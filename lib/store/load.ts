import { join } from 'node:path'
import { readRegularFileSync } from '../disk/regular-file.js'
import { FieldError, type Problem, reasonOf } from './errors.js'
import { type Intent, listing, readIntents } from './intents.js'
import { decodeUtf8, JsonError, lineOf, parseJson, refuseDuplicateKeys } from './json.js'
import { compareNames } from './order.js'
import { assertStorable, entryOf, objectFile } from './paths.js'
import { deepFreeze } from './transaction.js'
import type { Doc, Kind } from './types.js'

/** A state directory as read: nothing was written to it. */
export interface Loaded {
  /** The objects of each type in the order of their names, unfinished intents applied. */
  readonly objects: readonly { type: string; name: string; doc: Doc }[]
  readonly intents: readonly Intent[]
  /** Files that an interrupted atomic write left; safe to remove when no daemon runs. */
  readonly leftovers: readonly string[]
  /** What must stop a start. */
  readonly problems: readonly Problem[]
  /** Files that are none of ours: reported, and left alone. */
  readonly foreign: readonly Problem[]
  /** Objects whose files are to be written anew, and why. */
  readonly outdated: readonly Outdated[]
}

/** An object whose file holds what no file should hold. */
export interface Outdated extends Problem {
  readonly type: string
  readonly name: string
}

/**
 * Reads every object of a state directory. Synchronous on purpose: it is several times faster for 100,000 small files,
 * and nothing is served before it ends. `further` is read as if it were the last intent on the disk.
 */
export function load(directory: string, kinds: ReadonlyMap<string, Kind<Doc>>, further?: Intent): Loaded {
  const found = readIntents(directory, new Set(kinds.keys()))
  const { leftovers, problems } = found
  const intents = further ? [...found.intents, further] : found.intents
  const empty = { objects: [], foreign: [], outdated: [] }
  const loaded = { ...empty, intents, leftovers: [...leftovers], problems: [...problems] }
  for (const [type, kind] of kinds) {
    try {
      loadType(directory, type, kind, loaded)
    } catch (error) {
      loaded.problems.push({ file: join(directory, type), message: reasonOf(error) })
    }
  }
  return loaded
}

interface Loading {
  objects: { type: string; name: string; doc: Doc }[]
  intents: readonly Intent[]
  leftovers: string[]
  problems: Problem[]
  foreign: Problem[]
  outdated: Outdated[]
}

function loadType(directory: string, type: string, kind: Kind<Doc>, loading: Loading): void {
  const promised = new Map<string, string | undefined>()
  for (const write of loading.intents.flatMap(intent => intent.writes)) {
    if (write.type === type) promised.set(write.name, write.text)
  }
  const names = new Set(promised.keys())
  for (const fileName of listing(join(directory, type))) {
    const entry = entryOf(fileName)
    if (typeof entry !== 'string') names.add(entry.object)
    else if (entry === 'leftover') loading.leftovers.push(join(directory, type, fileName))
    else if (entry === 'foreign')
      loading.foreign.push({ file: join(directory, type, fileName), message: 'not a file of the store' })
  }
  for (const name of [...names].sort(compareNames)) {
    const file = objectFile(directory, type, name)
    let text: string | undefined
    try {
      assertStorable(name)
      text = promised.has(name) ? promised.get(name) : decodeUtf8(readRegularFileSync(file))
      if (text === undefined) continue
      const json = parseJson(text)
      loading.objects.push({ type, name, doc: deepFreeze(kind.decode(name, json)) })
      // The store itself writes no key twice: only a text from elsewhere needs the closer look.
      if (`${JSON.stringify(json, null, 2)}\n` !== text) refuseDuplicateKeys(text)
      const why = kind.outdated?.(json)
      if (why !== undefined) loading.outdated.push({ type, name, file, message: why })
    } catch (error) {
      const others = error instanceof FieldError ? error.others : []
      for (const one of [error, ...others])
        loading.problems.push({ file, ...lineIn(text, one), message: reasonOf(one) })
    }
  }
}

function lineIn(text: string | undefined, error: unknown): { line?: number } {
  if (error instanceof JsonError) return { line: error.line }
  if (error instanceof FieldError && text !== undefined) return { line: lineOf(text, error.path) }
  return {}
}
