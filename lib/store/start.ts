import { isObject, type JsonObject } from '../json.js'
import { LoadError, type Problem, reasonOf } from './errors.js'
import { parseJson } from './json.js'
import { INTENTS, type Medium, type Revertible, type Stored } from './medium.js'
import { type Loaded, load, State } from './state.js'
import type { Doc, Index, Kind, Types, View } from './types.js'

/** What a store is made of. */
export interface StoreOptions<T extends Types, I extends Index> {
  /** Where the objects are kept. */
  medium: Medium
  kinds: { [K in keyof T & string]: Kind<T[K]> }
  /** Called twice: one index for readers, one for transactions. Its `update` must not throw. */
  createIndex: () => I
  /** Checks the rules for which the whole state is needed, for files changed by hand. Any problem stops the start. */
  verify?: (view: View<T, I>) => readonly { type: string; name: string; message: string }[]
  /** The same object by object, for what is read later. */
  verifying?: (view: View<T, I>) => Generator<void, ReturnType<NonNullable<StoreOptions<T, I>['verify']>>>
  /** Called by `open` with what was read, before anything is written. A throw stops the start. */
  opened?: (view: View<T, I>) => Promise<void>
  /** The layouts of the state; without it, the store asks for no version and writes none. */
  layout?: Layout
  /** Called before a state gets today's layout: keeps a copy of it, and gives its place. A throw stops the start. */
  backUp?: (from: number) => Promise<string>
  /** Called when a store that followed has become the one that writes. */
  promoted?: () => void
  /** Called when a store that wrote follows another one. */
  demoted?: () => void
  /**
   * Given where a store goes on without what is damaged: is told every problem of it. The store holds what is sound, follows a shared
   * medium, and takes no changes before all is put right.
   */
  damaged?: (problems: readonly Problem[]) => void
  log?: (level: 'warn' | 'info' | 'error', message: string) => void
}

/** What a store starts with: what is stored, brought to today's layout in memory alone. */
export interface Start<T extends Types, I extends Index> extends Omit<Loaded, 'objects'> {
  readonly current: State<T, I>
  /** Another state of the same objects. */
  readonly stateOf: () => State<T, I>
  /** What has to be written first; undefined where the layout is today's. */
  readonly migration: Migration | undefined
  /** Where everything is, for messages. */
  readonly place: string
}

/** The kinds of a store's types, with that of the layout where it has one. */
export function kindsOf<T extends Types, I extends Index>(
  options: Pick<StoreOptions<T, I>, 'kinds' | 'layout'>
): Map<string, Kind<Doc>> {
  const kinds = new Map<string, Kind<Doc>>(Object.entries(options.kinds))
  for (const name of [INTENTS, LAYOUT])
    if (kinds.has(name)) throw new TypeError(`a type cannot be named ${name}`)
  if (options.layout) kinds.set(LAYOUT, layoutKind)
  return kinds
}

/** Reads, migrates and verifies what is stored. Writes nothing. Throws LoadError for a layout that cannot be read. */
export function startOf<T extends Types, I extends Index>(
  options: Omit<StoreOptions<T, I>, 'medium'>,
  stored: Stored
): Start<T, I> {
  const kinds = kindsOf(options)
  const { layout, damaged } = options
  const migration = layout && migrationOf(stored, layout, Object.keys(options.kinds), damaged !== undefined)
  const { objects, problems, ...loaded } = load(migration?.state ?? stored, kinds)
  const isGone = damaged && layout && !migration && [...stored.names(LAYOUT)].length === 0
  const gone = isGone ? [{ file: stored.place(LAYOUT, VERSION), message: GONE }] : []
  const current = new State<T, I>(kinds.keys(), options.createIndex())
  for (const { type, name, doc } of objects) current.set(type, name, doc)
  const stateOf = () => {
    const state = new State<T, I>(kinds.keys(), options.createIndex())
    for (const type of kinds.keys())
      for (const name of current.names(type)) state.set(type, name, current.get(type, name))
    return state
  }
  const all = [...gone, ...problems, ...verified(options, current, stored)]
  const found = all.map(problem => stored.mended?.(problem) ?? problem)
  return { ...loaded, problems: found, current, stateOf, migration, place: stored.place() }
}

/** Takes what breaks a rule out of what was read, and then what breaks one without that, until nothing does. */
export function keepSound<T extends Types, I extends Index>(
  { verify }: StoreOptions<T, I>,
  { current }: Start<T, I>
): void {
  for (let isSound = false; !isSound; ) {
    isSound = true
    for (const { type, name } of verify?.(current) ?? []) {
      if (current.get(type, name) === undefined) continue
      current.set(type, name, undefined)
      isSound = false
    }
  }
}

/** Keeps a copy of a state that gets today's layout. Throws Error with the way things stand where that fails. */
export async function keepBackUp<T extends Types, I extends Index>(
  { backUp, log = () => {} }: StoreOptions<T, I>,
  { migration, place }: Start<T, I>
): Promise<void> {
  if (!migration || migration.isNew) return
  const { from, to } = migration
  const kept = await backUp?.(from).catch((error: unknown) => {
    throw new Error(
      `${place}: the state has layout version ${from}, and is not brought to version ${to}, because its backup ` +
        `cannot be written: ${reasonOf(error)}; nothing is changed`
    )
  })
  log(
    'info',
    `the state is brought from layout version ${from} to ${to}${kept ? `; as it was, it is in ${kept}` : ''}`
  )
}

function verified<T extends Types, I extends Index>(
  options: Pick<StoreOptions<T, I>, 'verify'>,
  view: View<T, I>,
  stored: Stored
): Problem[] {
  const found = options.verify?.(view) ?? []
  return found.map(({ type, name, message }) => ({ file: stored.place(type, name), message }))
}

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
const layoutKind: Kind<LayoutDoc> = {
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
  /** By type and name. */
  readonly #written = new Map<string, Map<string, Revertible>>()

  constructor(private readonly stored: Stored) {}

  /** The names of all objects of a type. */
  names(type: string): string[] {
    const names = new Set(this.stored.names(type))
    for (const { name, text } of this.#written.get(type)?.values() ?? [])
      if (text === undefined) names.delete(name)
      else names.add(name)
    return [...names].sort()
  }

  text(type: string, name: string): string | undefined {
    const written = this.#written.get(type)?.get(name)
    return written ? written.text : this.stored.text(type, name)
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
    return this.stored.place(type, name)
  }

  problems(types?: ReadonlySet<string>) {
    return this.stored.problems(types)
  }

  get foreign() {
    return this.stored.foreign
  }

  #write(type: string, name: string, text: string | undefined): void {
    const ofType = this.#written.get(type) ?? new Map<string, Revertible>()
    this.#written.set(type, ofType)
    const { textBefore } = ofType.get(name) ?? { textBefore: this.stored.text(type, name) }
    ofType.set(name, { type, name, text, textBefore })
  }
}

/** What brings a state to today's layout: all of it is written, or nothing. */
interface Migration {
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
function migrationOf(
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
