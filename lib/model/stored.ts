import { isObject, type JsonValue } from '../json.js'
import { FieldError } from '../store/errors.js'
import type { Store } from '../store/store.js'
import type { Kind, Tx as StoreTx, View as StoreView } from '../store/types.js'
import type { Docs } from './docs.js'
import type { Table } from './field.js'
import type { ClusterIndex, IndexedType } from './index.js'
import type { SecretBox } from './secret-box.js'
import { type Report, readTable, storedFields } from './table.js'
import type { VariableMap } from './variables.js'

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

/** What secret fields are sealed with on disk, and the name of the type in the store. */
export interface Sealing {
  readonly box: SecretBox
  readonly type: string
}

/** How the objects of a type are written, and the fields that the text is made of. */
export interface StoredKind<D extends object> extends Kind<D> {
  fieldsOf(doc: D): Record<string, JsonValue>
}

/**
 * How the objects of a type are kept on disk: as their tables say, secret fields encrypted (rules 11.8). Without `sealing`
 * all of them are in the clear, as in an export.
 */
export function kindOf<D extends object>(type: StoredType<D>, sealing?: Sealing): StoredKind<D> {
  const table = tableOf(type)
  const keys = ['name', ...table.flatMap(({ name, derived }) => (derived ? [] : [name]))]
  const secret = new Set(table.flatMap(({ name, secret }) => (secret ? [name] : [])))
  // Keys in table order, whatever order a change built them in: equal objects have equal files.
  const fieldsOf = (doc: D) => {
    const fields = doc as Readonly<Record<string, JsonValue | undefined>>
    const ordered: Record<string, JsonValue> = {}
    for (const key of keys) {
      const value = fields[key]
      if (value === undefined) continue
      ordered[key] =
        sealing && secret.has(key)
          ? sealed(value, `${sealing.type}/${fields.name}/${key}`, sealing.box)
          : value
    }
    return ordered
  }
  return {
    decode(name, json) {
      const wrong: FieldError[] = []
      const report: Report = (path, message) => {
        wrong.push(new FieldError(path, `${type.title} ${name}: ${message}`))
      }
      const plain =
        sealing && isObject(json) && secret.size > 0 ? opened(json, secret, sealing, report) : json
      const read = readStored(type, name, plain, report, true)
      const [first, ...others] = wrong
      if (first) throw new FieldError(first.path, first.message, others)
      return read
    },
    encode: doc => `${JSON.stringify(fieldsOf(doc), null, 2)}\n`,
    fieldsOf,
    outdated(json) {
      if (!sealing || !isObject(json)) return undefined
      const clear = [...secret].filter(key => json[key] !== undefined && sealedText(json[key]) === undefined)
      return clear.length === 0 ? undefined : `field "${clear.join('", "')}" is in the clear`
    }
  }
}

/** A secret value as a file holds it. No field of an object takes such an object itself, so it is no value in the clear. */
const sealed = (value: JsonValue, context: string, box: SecretBox) => ({
  encrypted: box.seal(Buffer.from(JSON.stringify(value)), context)
})

/** The sealed text in a value of a file; undefined for a value in the clear, which a hand or an earlier version wrote. */
const sealedText = (value: JsonValue | undefined) =>
  isObject(value) && typeof value.encrypted === 'string' ? value.encrypted : undefined

/** The fields of a file with its secret ones in the clear. */
function opened(json: object, secret: ReadonlySet<string>, { box }: Sealing, report: Report): object {
  const fields = Object.entries(json).map(([key, value]) => {
    const text = secret.has(key) ? sealedText(value) : undefined
    return [key, text === undefined ? value : plainValue(text, box, key, report)]
  })
  return Object.fromEntries(fields)
}

function plainValue(text: string, box: SecretBox, key: string, report: Report): JsonValue {
  try {
    return JSON.parse(box.open(text).toString())
  } catch {
    const why = box.hasKey
      ? 'cannot be decrypted: secret.key is another one than it was encrypted with, or the value was changed; ' +
        'restore the secret.key that belongs to it from a backup'
      : 'cannot be decrypted without its secret.key; restore that from a backup'
    report(
      [key],
      `field "${key}" ${why}, or put the value in quotes in the place of the whole {…}: the start encrypts it`
    )
    return null
  }
}

export type { Change } from '../store/types.js'
export type View = StoreView<Docs, ClusterIndex>
export type Tx = StoreTx<Docs, ClusterIndex>
export type ClusterStore = Store<Docs, ClusterIndex>

/** A controller by its name and its own address. */
export interface NamedController {
  readonly name: string
  readonly address: string
}

/** Cluster-wide settings that groups and nodes inherit, and what the controller takes for itself. */
export interface ClusterSettings {
  readonly provision_method: string
  readonly provision_fallback: string
  readonly ntp_server: string
  readonly debug: boolean
  readonly technical_contacts: string
  readonly variables: VariableMap
  readonly controller: NamedController
  /** Those that share the objects with it. */
  readonly otherControllers: readonly NamedController[]
  /** The addresses of `[http] url`. */
  readonly urlAddresses: readonly string[]
  /** The URLs of svcd that boot scripts name, this controller's first; absent: not known. */
  readonly urls?: readonly string[]
  /** The DNS server on the controller is svcd's: it knows the cluster's names. */
  readonly servesDns: boolean
  /** `[image] directory`, absolute. */
  readonly imageDirectory: string
}
