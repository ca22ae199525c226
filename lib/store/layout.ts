import { join } from 'node:path'
import { makeDirectory } from '../disk/directory.js'
import type { FileLayer } from '../disk/files.js'
import { isMissing } from '../disk/missing.js'
import { readRegularFileSync } from '../disk/regular-file.js'
import { isObject, type JsonObject } from '../json.js'
import { LoadError, reasonOf } from './errors.js'
import { type Intent, intentText, listing, readIntents } from './intents.js'
import { decodeUtf8, parseJson } from './json.js'
import { entryOf, INTENTS, intentFile, objectFile } from './paths.js'
import type { Kind } from './types.js'

/** The type and the name of the object that says which layout a state directory has: `layout/version.json`. */
export const LAYOUT = 'layout'
const NAME = 'version'

/** What that object holds: `release` is the svcd that wrote it. */
interface LayoutDoc {
  readonly name: typeof NAME
  readonly version: number
  readonly release: string
}

/** The layouts that a program knows. */
export interface Layout {
  /** Each makes the next version of the one before, the first one version 1 of version 0. Their number is today's version. */
  readonly steps: readonly ((state: RawState) => void)[]
  /** The release of svcd that runs. */
  readonly release: string
}

/** How the object of the version is read and written. */
export const layoutKind: Kind<LayoutDoc> = {
  decode: (name, json) => {
    if (name !== NAME) throw new Error(`there is but one, ${NAME}.json`)
    return docOf(json)
  },
  encode: textOf
}

function docOf(json: unknown): LayoutDoc {
  const { version, release } = isObject(json) ? json : {}
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 0)
    throw new Error('field "version" must be a number from 0')
  return { name: NAME, version, release: typeof release === 'string' ? release : 'unknown' }
}

function textOf(json: object): string {
  return `${JSON.stringify(json, null, 2)}\n`
}

/** Objects as their files have them, with what intents promise, before anything of them is checked. */
export class RawState {
  readonly #directory: string
  /** `type/name` → the text that is to be written; undefined: no file. */
  readonly #promised = new Map<string, { type: string; name: string; text: string | undefined }>()
  readonly #written = new Map<string, { type: string; name: string; text: string | undefined }>()

  constructor(directory: string, intents: readonly Intent[]) {
    this.#directory = directory
    for (const write of intents.flatMap(({ writes }) => writes))
      this.#promised.set(`${write.type}/${write.name}`, { ...write, text: write.text })
  }

  /** The names of all objects of a type. */
  names(type: string): string[] {
    const found = listing(join(this.#directory, type)).flatMap(fileName => {
      const entry = entryOf(fileName)
      return typeof entry === 'string' ? [] : [entry.object]
    })
    const names = new Set(found)
    for (const { type: its, name, text } of [...this.#promised.values(), ...this.#written.values()])
      if (its === type) {
        if (text === undefined) names.delete(name)
        else names.add(name)
      }
    return [...names].sort()
  }

  /** An object; undefined where there is none. Throws LoadError for a file that holds none. */
  get(type: string, name: string): JsonObject | undefined {
    const key = `${type}/${name}`
    const file = objectFile(this.#directory, type, name)
    try {
      const known = this.#written.get(key) ?? this.#promised.get(key)
      const text = known ? known.text : decodeUtf8(readRegularFileSync(file))
      if (text === undefined) return undefined
      const json = parseJson(text)
      if (!isObject(json)) throw new Error('it is not an object')
      return json
    } catch (error) {
      if (isMissing(error)) return undefined
      throw new LoadError([{ file, message: reasonOf(error) }])
    }
  }

  put(type: string, name: string, json: JsonObject): void {
    this.#written.set(`${type}/${name}`, { type, name, text: textOf(json) })
  }

  remove(type: string, name: string): void {
    this.#written.set(`${type}/${name}`, { type, name, text: undefined })
  }

  /** What was put and removed. */
  get writes(): Intent['writes'] {
    return [...this.#written.values()]
  }
}

/** What has to be written so that a state has today's layout: all of it, or nothing. */
export interface Migration {
  readonly from: number
  readonly to: number
  /** Nothing was ever stored there. */
  readonly isNew: boolean
  readonly intent: Intent
}

/**
 * What brings a state directory to today's layout (rules 11.11); undefined where it has it. A state without a version has
 * version 0. Writes nothing. Throws LoadError for a newer one, which names both versions and the way out, and for a file
 * that cannot be read.
 */
export function migrationOf(
  directory: string,
  { steps, release }: Layout,
  types: readonly string[]
): Migration | undefined {
  const { intents, problems } = readIntents(directory)
  if (problems.length > 0) throw new LoadError(problems)
  const raw = new RawState(directory, intents)
  const file = objectFile(directory, LAYOUT, NAME)
  const { version: from, release: by } = versionIn(raw, file)
  const to = steps.length
  if (from > to) {
    const message =
      `this state has layout version ${from}, written by svcd ${by}; svcd ${release} knows versions up to ${to}: ` +
      `install svcd ${by} or a later one, or restore a backup of before that (svcd restore --force FILE; the start that ` +
      `made version ${from} left one in ${join(directory, 'backups')}); nothing is changed`
    throw new LoadError([{ file, message }])
  }
  if (from === to) return undefined
  const isNew = intents.length === 0 && types.every(type => raw.names(type).length === 0)
  for (const step of steps.slice(from)) step(raw)
  const doc: LayoutDoc = { name: NAME, version: to, release }
  raw.put(LAYOUT, NAME, { ...doc })
  const number = (intents.at(-1)?.number ?? 0) + 1
  return { from, to, isNew, intent: { number, writes: raw.writes } }
}

function versionIn(raw: RawState, file: string): Pick<LayoutDoc, 'version' | 'release'> {
  const json = raw.get(LAYOUT, NAME)
  if (json === undefined) return { version: 0, release: '' }
  try {
    return docOf(json)
  } catch (error) {
    throw new LoadError([{ file, message: reasonOf(error) }])
  }
}

/**
 * Writes a migration. It is one intent, the version with it: a crash leaves the state as it was, or as it is to be. The
 * objects' files follow as those of every intent do.
 */
export async function commitMigration(
  directory: string,
  { intent }: Migration,
  files: FileLayer
): Promise<void> {
  const place = async (type: string, file: string, text: string | Iterable<string>) => {
    await makeDirectory(join(directory, type), made => files.syncDirectory(made))
    await files.replace(file, text)
    await files.syncDirectory(join(directory, type))
  }
  const [only, ...more] = intent.writes
  // Of an older intent nothing is in a file that no older release knows.
  if (only?.text !== undefined && more.length === 0)
    return place(only.type, objectFile(directory, only.type, only.name), only.text)
  await place(INTENTS, intentFile(directory, intent.number), intentText(intent.writes))
}
