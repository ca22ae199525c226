import type { TypeName } from './docs.js'
import type { Table } from './field.js'
import type { IndexedType } from './index.js'
import { isObjectName, objectNameRule } from './names.js'

/** What the generic code has to know of an object type; `D` is its stored shape. */
export interface ObjectType<D extends object = object> extends IndexedType<D> {
  readonly type: TypeName
  /** "OS image": for messages. */
  readonly title: string
  readonly fields: Table
  /** The field that renames and clones, and its other spellings. */
  readonly newName: readonly [string, ...string[]]
  readonly isName: (name: string) => boolean
  readonly nameRule: string
  /** Groups and nodes hold interfaces and may override what they inherit. */
  readonly interfaces?: true
}

/** The rule that most names follow (rules 3.1). */
export const named = { isName: isObjectName, nameRule: objectNameRule }
