import { runSync } from '../base/concurrency.js'
import type { Problem } from '../base/errors.js'
import { isObject, type JsonObject } from '../base/json.js'
import { getOrAdd } from '../base/lists.js'
import { LoadError, reasonOf } from './errors.js'
import { parseJson } from './json.js'
import { INTENTS, type Medium, type Revertible, type StoredState } from './medium.js'
import { type Loaded, load, State } from './state.js'
import type { Doc, Index, Kind, Types, View } from './types.js'

export interface StoreOptions<T extends Types, I extends Index> {
  /** Stores the objects. */
  medium: Medium
  kinds: { [K in keyof T & string]: Kind<T[K]> }
  /** Called twice: one index for readers, one for transactions. Its `update` must not throw. */
  createIndex: () => I
  /** Checks the rules that need the whole state, in steps. A problem stops the start, or fails the reload. */
  verify?: (view: View<T, I>) => Generator<void, readonly { type: string; name: string; message: string }[]>
  /** Called by `open` with the state as read, before anything is written. A throw stops the start. */
  beforeFirstWrite?: (view: View<T, I>) => Promise<void>
  /** The layouts of the state; without it, versions are neither checked nor written. */
  layout?: Layout
  /** Called before a migration: backs the state up and returns the location. A throw stops the start. */
  backUp?: (from: number) => Promise<string>
  /**
   * If given, a store with damaged objects opens without them, and this is called with every problem. It
   * follows a shared medium and refuses changes until all problems are mended.
   */
  onDamage?: (problems: readonly Problem[]) => void
  log?: (level: 'warn' | 'info' | 'error', message: string) => void
}

/** The state as read, migrated to today's layout in memory. */
export interface Start<T extends Types, I extends Index> extends Omit<Loaded, 'objects'> {
  readonly current: State<T, I>
  /** Returns another state of the same objects. */
  readonly stateOf: () => State<T, I>
  /** To be written first; undefined if the layout is today's. */
  readonly migration: Migration | undefined
  /** The location of the store, for messages. */
  readonly place: string
}

/** The kinds of a store's types, and the layout's if it has one. */
export function kindsOf<T extends Types, I extends Index>(
  options: Pick<StoreOptions<T, I>, 'kinds' | 'layout'>
): Map<string, Kind<Doc>> {
  const kinds = new Map<string, Kind<Doc>>(Object.entries(options.kinds))
  for (const name of [INTENTS, LAYOUT])
    if (kinds.has(name)) throw new TypeError(`a type cannot be named ${name}`)
  if (options.layout) kinds.set(LAYOUT, layoutKind)
  return kinds
}

/** Reads, migrates and verifies what is stored. Writes nothing. Throws LoadError for an unreadable layout. */
export function startOf<T extends Types, I extends Index>(
  options: Omit<StoreOptions<T, I>, 'medium'>,
  stored: StoredState
): Start<T, I> {
  const kinds = kindsOf(options)
  const { layout, onDamage, verify } = options
  const migration = layout && migrationOf(stored, layout, Object.keys(options.kinds), onDamage !== undefined)
  const { objects, problems, ...loaded } = load(migration?.state ?? stored, kinds)
  const isGone = onDamage && layout && !migration && [...stored.names(LAYOUT)].length === 0
  const gone = isGone ? [{ file: stored.place(LAYOUT, VERSION), message: LAYOUT_MISSING }] : []
  const current = new State<T, I>(kinds.keys(), options.createIndex())
  for (const { type, name, doc } of objects) current.set(type, name, doc)
  const stateOf = () => {
    const state = new State<T, I>(kinds.keys(), options.createIndex())
    for (const type of kinds.keys())
      for (const name of current.names(type)) state.set(type, name, current.get(type, name))
    return state
  }
  const broken = (verify && runSync(verify(current))) ?? []
  const violations = broken.map(({ type, name, message }) => ({ file: stored.place(type, name), message }))
  const all = [...gone, ...problems, ...violations]
  const found = all.map(problem => stored.withRemedy?.(problem) ?? problem)
  return { ...loaded, problems: found, current, stateOf, migration, place: stored.place() }
}

/** Removes objects that break a rule until none does: each removal may break another rule. */
export function removeBroken<T extends Types, I extends Index>(
  { verify }: StoreOptions<T, I>,
  { current }: Start<T, I>
): void {
  for (let isSound = false; !isSound; ) {
    isSound = true
    for (const { type, name } of (verify && runSync(verify(current))) ?? []) {
      if (current.get(type, name) === undefined) continue
      current.set(type, name, undefined)
      isSound = false
    }
  }
}

/** Backs up a state before its migration. Throws Error with the consequences if that fails. */
export async function backUpBeforeMigration<T extends Types, I extends Index>(
  { backUp, log = () => {} }: StoreOptions<T, I>,
  { migration, place }: Start<T, I>
): Promise<void> {
  if (!migration || migration.isNew) return
  const { from, to } = migration
  const kept = await backUp?.(from).catch((error: unknown) => {
    throw new Error(
      `${place}: the state has layout version ${from}, and is not brought to version ${to}, because its ` +
        `backup cannot be written: ${reasonOf(error)}; nothing is changed`
    )
  })
  log(
    'info',
    `the state is brought from layout version ${from} to ${to}${kept ? `; as it was, it is in ${kept}` : ''}`
  )
}

/** Type and name of the object with the version of the layout: `layout/version.json`. */
export const LAYOUT = 'layout'
export const VERSION = 'version'
/** The message if it is missing. */
export const LAYOUT_MISSING = 'it is gone, and objects are there: put back what it held'

/** That object; `release` is the svcd that wrote it. */
interface LayoutDoc {
  readonly name: typeof VERSION
  readonly version: number
  readonly release: string
}

/** The layouts that this program knows. */
export interface Layout {
  /** Each step migrates to the next version, the first from 0 to 1. Their number is today's version. */
  readonly steps: readonly ((state: RawState) => void)[]
  /** The running release of svcd. */
  readonly release: string
  /** The location of backups of older layouts, for messages. */
  readonly backups?: string
}

/** Reads and writes the object of the version. */
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

/** Objects as stored, unchecked. Writes stay in memory. */
export class RawState implements StoredState {
  /** By type and name. */
  readonly #written = new Map<string, Map<string, Revertible>>()

  constructor(private readonly stored: StoredState) {}

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

  /** Returns an object; undefined if missing. Throws LoadError if it is malformed. */
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

  /** The writes made so far. */
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
    const ofType = getOrAdd(this.#written, type, () => new Map<string, Revertible>())
    const { textBefore } = ofType.get(name) ?? { textBefore: this.stored.text(type, name) }
    ofType.set(name, { type, name, text, textBefore })
  }
}

/** A migration to today's layout, written as a whole or not at all. */
interface Migration {
  readonly from: number
  readonly to: number
  /** Nothing was ever stored there. */
  readonly isNew: boolean
  /** The state after the migration. */
  readonly state: RawState
}

/**
 * Returns the migration to today's layout (rules 11.11); undefined if the state has it. A state without a
 * version has version 0. Writes nothing. Throws LoadError for a newer version, with both versions and the way
 * out, and for unreadable data; if `isLenient`, returns undefined for the latter.
 */
function migrationOf(
  stored: StoredState,
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
      `this state has layout version ${from}, written by svcd ${by}; svcd ${release} knows versions up to ` +
      `${to}: install svcd ${by} or a later one, or restore a backup of before that (svcd restore --force ` +
      `FILE${kept}); nothing is changed`
    throw new LoadError([{ file: stored.place(LAYOUT, VERSION), message }])
  }
  if (from === to) return undefined
  const isNew = types.every(type => state.names(type).length === 0)
  // On such a medium, no release wrote objects without a layout: it was removed.
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
