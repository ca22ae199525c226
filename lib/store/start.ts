import { type Problem, reasonOf } from './errors.js'
import { GONE, LAYOUT, type Layout, layoutKind, type Migration, migrationOf, VERSION } from './layout.js'
import { type Loaded, load } from './load.js'
import { INTENTS, type Medium, type Stored } from './medium.js'
import { State } from './state.js'
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
