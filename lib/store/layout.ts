import { isObject, type JsonObject } from '../json.js'
import { LoadError, reasonOf } from './errors.js'
import { parseJson } from './json.js'
import type { Revertible, Stored } from './medium.js'
import type { Kind } from './types.js'

/** The type and the name of the object that says which layout a state has: `layout/version.json`. */
export const LAYOUT = 'layout'
export const VERSION = 'version'
/** The problem where it is missing. */
export const GONE = 'it is gone, and objects are there: put back what it held'

/** What that object holds: `release` is the svcd that wrote it. */
interface LayoutDoc {
  readonly name: typeof VERSION
  readonly version: number
  readonly release: string
}

/** The layouts that a program knows. */
export interface Layout {
  /** Each makes the next version of the one before, the first one version 1 of version 0. Their number is today's version. */
  readonly steps: readonly ((state: RawState) => void)[]
  /** The release of svcd that runs. */
  readonly release: string
  /** Where copies of older layouts are kept, for messages. */
  readonly backups?: string
}

/** How the object of the version is read and written. */
export const layoutKind: Kind<LayoutDoc> = {
  decode: (name, json) => {
    if (name !== VERSION) throw new Error(`there is but one, ${VERSION}.json`)
    return docOf(json)
  },
  encode: textOf
}

function docOf(json: unknown): LayoutDoc {
  const { version, release } = isObject(json) ? json : {}
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 0)
    throw new Error('field "version" must be a number from 0')
  return { name: VERSION, version, release: typeof release === 'string' ? release : 'unknown' }
}

function textOf(json: object): string {
  return `${JSON.stringify(json, null, 2)}\n`
}

/** Objects as they are stored, before anything of them is checked. What is put and removed stays here. */
export class RawState implements Stored {
  readonly #stored: Stored
  /** By type and name. */
  readonly #written = new Map<string, Map<string, Revertible>>()

  constructor(stored: Stored) {
    this.#stored = stored
  }

  /** The names of all objects of a type. */
  names(type: string): string[] {
    const names = new Set(this.#stored.names(type))
    for (const { name, text } of this.#written.get(type)?.values() ?? [])
      if (text === undefined) names.delete(name)
      else names.add(name)
    return [...names].sort()
  }

  text(type: string, name: string): string | undefined {
    const written = this.#written.get(type)?.get(name)
    return written ? written.text : this.#stored.text(type, name)
  }

  /** An object; undefined where there is none. Throws LoadError for what is none. */
  get(type: string, name: string): JsonObject | undefined {
    try {
      const text = this.text(type, name)
      if (text === undefined) return undefined
      const json = parseJson(text)
      if (!isObject(json)) throw new Error('it is not an object')
      return json
    } catch (error) {
      throw new LoadError([{ file: this.place(type, name), message: reasonOf(error) }])
    }
  }

  put(type: string, name: string, json: JsonObject): void {
    this.#write(type, name, textOf(json))
  }

  remove(type: string, name: string): void {
    this.#write(type, name, undefined)
  }

  /** What was put and removed. */
  get writes(): readonly Revertible[] {
    return [...this.#written.values()].flatMap(writes => [...writes.values()])
  }

  place(type?: string, name?: string): string {
    return this.#stored.place(type, name)
  }

  problems(types?: ReadonlySet<string>) {
    return this.#stored.problems(types)
  }

  get foreign() {
    return this.#stored.foreign
  }

  #write(type: string, name: string, text: string | undefined): void {
    const ofType = this.#written.get(type) ?? new Map<string, Revertible>()
    this.#written.set(type, ofType)
    const { textBefore } = ofType.get(name) ?? { textBefore: this.#stored.text(type, name) }
    ofType.set(name, { type, name, text, textBefore })
  }
}

/** What brings a state to today's layout: all of it is written, or nothing. */
export interface Migration {
  readonly from: number
  readonly to: number
  /** Nothing was ever stored there. */
  readonly isNew: boolean
  /** The state as it is to be. */
  readonly state: RawState
}

/**
 * What brings a state to today's layout (rules 11.11); undefined where it has it. A state without a version has version 0.
 * Writes nothing. Throws LoadError for a newer one, which names both versions and the way out, and for what
 * cannot be read; where it `isLenient`, it gives undefined then.
 */
export function migrationOf(
  stored: Stored,
  { steps, release, backups }: Layout,
  types: readonly string[],
  isLenient = false
): Migration | undefined {
  const problems = stored.problems()
  if (problems.length > 0 && isLenient) return undefined
  if (problems.length > 0) throw new LoadError(problems)
  const state = new RawState(stored)
  const version = versionIn(state, isLenient)
  if (!version) return undefined
  const { version: from, release: by } = version
  const to = steps.length
  if (from > to) {
    const kept = backups ? `; the start that made version ${from} left one in ${backups}` : ''
    const message =
      `this state has layout version ${from}, written by svcd ${by}; svcd ${release} knows versions up to ${to}: ` +
      `install svcd ${by} or a later one, or restore a backup of before that (svcd restore --force FILE${kept}); ` +
      'nothing is changed'
    throw new LoadError([{ file: stored.place(LAYOUT, VERSION), message }])
  }
  if (from === to) return undefined
  const isNew = types.every(type => state.names(type).length === 0)
  // No release has kept objects without a layout where what is damaged may be left out.
  if (isLenient && from === 0 && !isNew) return undefined
  for (const step of steps.slice(from)) step(state)
  const doc: LayoutDoc = { name: VERSION, version: to, release }
  state.put(LAYOUT, VERSION, { ...doc })
  return { from, to, isNew, state }
}

function versionIn(state: RawState, isLenient: boolean): Pick<LayoutDoc, 'version' | 'release'> | undefined {
  try {
    const json = state.get(LAYOUT, VERSION)
    return json === undefined ? { version: 0, release: '' } : docOf(json)
  } catch (error) {
    if (isLenient) return undefined
    if (error instanceof LoadError) throw error
    throw new LoadError([{ file: state.place(LAYOUT, VERSION), message: reasonOf(error) }])
  }
}
