import type { Docs, TypeName } from './docs.js'
import type { InheritedValues, KernelOptions } from './effective.js'
import type { Table } from './field.js'
import { isObjectName, objectNameRule } from './names.js'
import type { ClusterSettings, StoredType, Tx, View } from './stored.js'

/** The fields that a request gives for one interface; missing ones stay, null removes. */
export interface InterfacePatch {
  readonly interface: string
  readonly network?: string | null
  readonly ipaddress?: string | null
  readonly macaddress?: string | null
  readonly options?: string | null
  /** The new name; null keeps the present one. */
  readonly newinterfacename?: string | null
  readonly force: boolean
}

/** A body about one object, checked field by field. */
export interface ObjectPatch {
  /** Stored fields by name; null removes the object's own value. */
  readonly values: ReadonlyMap<string, unknown>
  readonly newName: string | undefined
  readonly interfaces: readonly InterfacePatch[]
  /** Store every given field (rules 3.4): `_override: true` in a body that was not read from svcd. */
  readonly override: boolean
  /** The body holds keys that only an answer has: it was read from svcd and perhaps edited. */
  readonly readBack: boolean
}

/** The caller's rights: only an admin may take an address from another node by force (rules 3.8). */
export interface CallerRights {
  readonly mayTakeAddresses: boolean
}

export interface ChangeContext {
  readonly tx: Tx
  readonly cluster: ClusterSettings
  /** Milliseconds since 1970. */
  readonly now: number
  readonly callerRights: CallerRights
}

/** Settings in force, the level that sets each, and values that answers show but nothing stores. */
type EffectiveValues = Pick<InheritedValues, 'settings' | 'sources'> & { readonly derived?: object }

/** All that is particular to an object type with the stored shape `D`; optional members state exceptions. */
export interface ObjectType<D extends object = object> extends StoredType<D> {
  readonly type: TypeName
  /** The parameter in paths, if it differs from the type's name. */
  readonly parameter?: string
  /** The field for the new name of a rename or clone, with its other spellings. */
  readonly newName: readonly [string, ...string[]]
  readonly isName: (name: string) => boolean
  readonly nameRule: string
  /** The fields of its interfaces in answers. */
  readonly interfaces?: Table
  /** The status of a rename or clone without a new name, if not 400 (rules 2.4). */
  readonly missingNameStatus?: 404

  /** Returns what an object, or a new one, inherits from its group and the cluster (rules 3.3). */
  effectiveValues?(
    doc: D | undefined,
    group: Docs['group'] | undefined,
    cluster: ClusterSettings
  ): EffectiveValues
  /** Returns the kernel options in force, which answers show beside the object's own (rules 3.4). */
  kernelOptions?(doc: D, group: Docs['group'] | undefined, image: Docs['osimage'] | undefined): KernelOptions
  omittedFields?(doc: D): readonly string[]
  /** Internal fields that answers show with an underscore before their names. */
  readonly shownInternals?: readonly string[]
  /** Stores a changed object and its consequences, one step each. Default: stores `after`. */
  write?(changing: ChangeContext, before: D | undefined, after: D, given: ObjectPatch): Generator<void>
  /** The fields that a clone does not get (rules 3.2). */
  readonly unique?: readonly string[]
  /** Returns the base of a clone, from a copy without the unique fields. */
  copy?(changing: ChangeContext, copy: D): D
  /** Returns the part of a request that applies to a clone. Default: all of it. */
  clonePatch?(given: ObjectPatch, source: D): ObjectPatch
  /** Removes an interface and stores the object and its consequences, one step each. */
  removeInterface?(changing: ChangeContext, doc: D, name: string): Generator<void>

  /** Changes of other objects that follow a clone, rename or delete. */
  copied?(changing: ChangeContext, from: string, to: string): void
  renamed?(changing: ChangeContext, from: string, to: string): void
  removed?(changing: ChangeContext, names: readonly string[]): void

  /** Yields the type's own checks; each throws 400 with a message that begins with `title`. */
  checks?(view: View, doc: D, title: string, cluster: ClusterSettings): Iterable<() => void>
  /** Checks the rules that a change may break for other objects, one step each; throws 400. */
  checkChange?(tx: Tx, before: D, after: D, cluster: ClusterSettings): Generator<void>
}

/** The rule for most names (rules 3.1). */
export const named = { isName: isObjectName, nameRule: objectNameRule }
