import type { Docs, TypeName } from './docs.js'
import type { KernelOptions, Settings, Sources, VariableSources } from './effective.js'
import type { Table } from './field.js'
import { isObjectName, objectNameRule } from './names.js'
import type { ClusterSettings, StoredType, Tx, View } from './stored.js'

/** What a request gives for one interface; absent: left as it is, null: removed. */
export interface GivenInterface {
  readonly interface: string
  readonly network?: string | null
  readonly ipaddress?: string | null
  readonly macaddress?: string | null
  readonly options?: string | null
  /** Its new name; null: it keeps its name. */
  readonly newinterfacename?: string | null
  readonly force: boolean
}

/** A body about one object, checked field by field. */
export interface Given {
  /** Stored fields by name; null removes the object's own value. */
  readonly values: ReadonlyMap<string, unknown>
  readonly newName: string | undefined
  readonly interfaces: readonly GivenInterface[]
  /** `_override: true` in a body that was not read from here: every given field is stored (rules 3.4). */
  readonly override: boolean
  /** The body holds what only an answer of ours does: it was read, and maybe changed. */
  readonly readBack: boolean
}

/** Who asks: an admin may take an address from another node by force, a node may not (rules 3.8). */
export interface Power {
  readonly takesAddresses: boolean
}

/** A change under way. */
export interface Changing {
  readonly tx: Tx
  readonly cluster: ClusterSettings
  /** Milliseconds since 1970. */
  readonly now: number
  readonly power: Power
}

/** The settings in force, who sets each, and what else answers show and nothing stores. */
export interface InForce {
  readonly settings: Settings
  readonly sources: Sources & { readonly variables: VariableSources }
  readonly derived?: object
}

/**
 * Everything that is particular to an object type; `D` is its stored shape. The generic code (requests, files, rules,
 * export and import, documents) goes by it. A type needs what is not optional; the rest says where it differs.
 */
export interface ObjectType<D extends object = object> extends StoredType<D> {
  readonly type: TypeName
  /** Its parameter in paths, where that is not the name of the type: another path has it. */
  readonly parameter?: string
  /** The field that renames and clones, and its other spellings. */
  readonly newName: readonly [string, ...string[]]
  readonly isName: (name: string) => boolean
  readonly nameRule: string
  /** What answers show of the interfaces that it holds. */
  readonly interfaces?: Table
  /** The code of a clone or a rename without the new name, where it is not 400 (rules 2.4). */
  readonly namelessCode?: 404

  /** What it, or a new one, inherits from its group and from the cluster (rules 3.3). */
  inForce?(doc: D | undefined, group: Docs['group'] | undefined, cluster: ClusterSettings): InForce
  /** The kernel options that it, or its nodes, boot with: answers tell them beside its own (rules 3.4). */
  kernelOptions?(doc: D, group: Docs['group'] | undefined, image: Docs['osimage'] | undefined): KernelOptions
  /** The fields that answers leave out. */
  leavesOut?(doc: D): readonly string[]
  /** Stores an object whose fields a request has changed, and what follows it, a step for each. Without it, `after` alone. */
  write?(changing: Changing, before: D | undefined, after: D, given: Given): Generator<void>
  /** The fields that a clone does not have (rules 3.2). */
  readonly unique?: readonly string[]
  /** What a clone starts from, made of a copy without these. */
  copy?(changing: Changing, copy: D): D
  /** What a request asks of a clone. Without it, all that it holds. */
  wishes?(given: Given, source: D): Given
  /** Takes an interface away, and stores the object and what follows it, a step for each. */
  removeInterface?(changing: Changing, doc: D, name: string): Generator<void>

  /** What else a clone, a rename or a delete changes. */
  copied?(changing: Changing, from: string, to: string): void
  renamed?(changing: Changing, from: string, to: string): void
  removed?(changing: Changing, names: readonly string[]): void

  /** The rules of its own: each check throws 400, its message begins with `title`. */
  checks?(view: View, doc: D, title: string, cluster: ClusterSettings): Iterable<() => void>
  /** The rules that a change may break for others, a step for each of them; throws 400. */
  checkChange?(tx: Tx, before: D, after: D, cluster: ClusterSettings): Generator<void>
}

/** The rule that most names follow (rules 3.1). */
export const named = { isName: isObjectName, nameRule: objectNameRule }
