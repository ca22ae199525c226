import { isObject } from '../json.js'
import { FieldError } from '../store/errors.js'
import type { Kind } from '../store/types.js'
import type { Table } from './field.js'
import type { IndexedType } from './index.js'
import { type Report, readTable, storedFields } from './table.js'
import type { ClusterSettings, Tx, View } from './view.js'

/** What is known of everything that is stored, by type. */
export interface StoredType<D extends object = object> extends IndexedType<D> {
  /** "OS image": for messages. */
  readonly title: string
  readonly fields: Table
  /** What is stored beside the fields, and no answer shows. */
  readonly hidden?: Table
  /** What may be given, and is dropped (rules 1.6). */
  readonly dropped?: Table
  /** Which names there may be; without it, any. */
  readonly isName?: (name: string) => boolean
  readonly nameRule?: string
}

/** What belongs to objects without being one. */
export interface AttachedType<D extends object = object> extends StoredType<D> {
  /** What is wrong with one that a hand changed. */
  checks?(view: View, doc: D): Iterable<string>
  /** Throws 400 where one may not go. */
  checkRemoved?(tx: Tx, doc: D, cluster: ClusterSettings): void
}

const tableOf = ({ fields, hidden = [] }: StoredType): Table => [...fields, ...hidden]

/**
 * Reads an object of an import, or (`exact`) of a file, whose name is in it too. What is wrong with it goes to `report`,
 * and is left out.
 */
export function readStored<D extends object>(
  type: StoredType<D>,
  name: string,
  json: unknown,
  report: Report,
  exact = false
): D {
  const { isName, nameRule, dropped = [] } = type
  const table = tableOf(type)
  const { name: given, ...fields } = isObject(json) ? json : {}
  if (!isObject(json)) report([], 'it is not an object')
  if (given === undefined && exact) report(['name'], 'field "name" is missing')
  if (given !== undefined && given !== name) report(['name'], `field "name" is ${JSON.stringify(given)}`)
  if (isName && !isName(name)) report([], `its name must be ${nameRule}`)
  const values = readTable(exact ? table : [...table, ...dropped], fields, report, exact)
  // Each value was read by the type of its field.
  return { name, ...storedFields(table, values) } as object as D
}

/** How the objects of a type are kept on disk: as their tables say. */
export function kindOf<D extends object>(type: StoredType<D>): Kind<D> {
  const keys = ['name', ...tableOf(type).flatMap(({ name, derived }) => (derived ? [] : [name]))]
  return {
    decode(name, json) {
      const report: Report = (path, message) => {
        throw new FieldError(path, `${type.title} ${name}: ${message}`)
      }
      return readStored(type, name, json, report, true)
    },
    // Keys in table order, whatever order a change built them in: equal objects have equal files.
    encode: doc => {
      const fields = doc as Readonly<Record<string, unknown>>
      const ordered = keys.filter(key => fields[key] !== undefined).map(key => [key, fields[key]])
      return `${JSON.stringify(Object.fromEntries(ordered), null, 2)}\n`
    }
  }
}
