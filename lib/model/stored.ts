import { isObject, type JsonValue } from '../base/json.js'
import { FieldError } from '../store/errors.js'
import type { Store } from '../store/store.js'
import type { Kind, Tx as StoreTx, View as StoreView } from '../store/types.js'
import type { ClusterIndex, IndexedType } from './cluster-index.js'
import type { Docs } from './docs.js'
import type { Table } from './field.js'
import type { SecretBox } from './secret-box.js'
import { type Report, readTable, storedFields } from './table.js'
import type { VariableMap } from './variables.js'

export interface StoredType<D extends object = object> extends IndexedType<D> {
  /** For messages, such as "OS image". */
  readonly title: string
  readonly fields: Table
  /** Fields that are stored and never shown. */
  readonly internalFields?: Table
  /** Fields that a request may hold and that are ignored (rules 1.6). */
  readonly ignoredFields?: Table
  /** Without it, any name is allowed. */
  readonly isName?: (name: string) => boolean
  readonly nameRule?: string
}

/** Stored data that belongs to objects but is no object. */
export interface AttachedType<D extends object = object> extends StoredType<D> {
  /** Yields the problems of data edited by hand. */
  checks?(view: View, doc: D): Iterable<string>
  /** Throws 400 if the data may not be removed. */
  checkRemoved?(tx: Tx, doc: D, cluster: ClusterSettings): void
}

const tableOf = ({ fields, internalFields = [] }: StoredType): Table => [...fields, ...internalFields]

/** Reads an object of an import, or with `exact` of a file. Reports problems, and omits their values. */
export function readStored<D extends object>(
  type: StoredType<D>,
  name: string,
  json: unknown,
  report: Report,
  exact = false
): D {
  const { isName, nameRule, ignoredFields = [] } = type
  const table = tableOf(type)
  const { name: given, ...fields } = isObject(json) ? json : {}
  if (!isObject(json)) report([], 'it is not an object')
  if (given === undefined && exact) report(['name'], 'field "name" is missing')
  if (given !== undefined && given !== name) report(['name'], `field "name" is ${JSON.stringify(given)}`)
  if (isName && !isName(name)) report([], `its name must be ${nameRule}`)
  const values = readTable(exact ? table : [...table, ...ignoredFields], fields, report, exact)
  // `readTable` has read each value by the type of its field.
  return { name, ...storedFields(table, values) } as object as D
}

/** The key box for secret fields on disk, and the type's name in the store. */
interface Sealing {
  readonly box: SecretBox
  readonly type: string
}

export interface StoredKind<D extends object> extends Kind<D> {
  fieldsOf(doc: D): Record<string, JsonValue>
}

/** Returns how objects are stored, secrets encrypted (rules 11.8); without `sealing`, as in an export. */
export function kindOf<D extends object>(type: StoredType<D>, sealing?: Sealing): StoredKind<D> {
  const table = tableOf(type)
  const keys = ['name', ...table.flatMap(({ name, derived }) => (derived ? [] : [name]))]
  const secret = new Set(table.flatMap(({ name, secret }) => (secret ? [name] : [])))
  // In table order, so that equal objects have equal files.
  const fieldsOf = (doc: D) => {
    const fields = doc as Readonly<Record<string, JsonValue | undefined>>
    const ordered: Record<string, JsonValue> = {}
    for (const key of keys) {
      const value = fields[key]
      if (value === undefined) continue
      const isSealed = sealing && secret.has(key)
      ordered[key] = isSealed ? sealed(value, `${sealing.type}/${fields.name}/${key}`, sealing.box) : value
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

/** Seals a secret value. No field takes an object of this form: it is never mistaken for a clear value. */
const sealed = (value: JsonValue, context: string, box: SecretBox) => ({
  encrypted: box.seal(Buffer.from(JSON.stringify(value)), context)
})

/** Returns the sealed text of a value; undefined for a clear one, by hand or from an earlier version. */
const sealedText = (value: JsonValue | undefined) =>
  isObject(value) && typeof value.encrypted === 'string' ? value.encrypted : undefined

function opened(json: object, secret: ReadonlySet<string>, { box }: Sealing, report: Report): object {
  const fields = Object.entries(json).map(([key, value]) => {
    const text = secret.has(key) ? sealedText(value) : undefined
    return [key, text === undefined ? value : plainValue(text, box, key, report)]
  })
  return Object.fromEntries(fields.filter(([, value]) => value !== undefined))
}

function plainValue(text: string, box: SecretBox, key: string, report: Report): JsonValue | undefined {
  try {
    return JSON.parse(box.open(text).toString())
  } catch {
    const why = box.hasKey
      ? 'cannot be decrypted: secret.key is another one than it was encrypted with, or the value ' +
        'was changed; restore the secret.key that belongs to it from a backup'
      : 'cannot be decrypted without its secret.key; restore that from a backup'
    report(
      [key],
      `field "${key}" ${why}, or put the value in quotes in the place of the whole {…}: the start encrypts it`
    )
    return undefined
  }
}

export type { Change } from '../store/types.js'
export type View = StoreView<Docs, ClusterIndex>
export type Tx = StoreTx<Docs, ClusterIndex>
export type ClusterStore = Store<Docs, ClusterIndex>

/** Returns all objects of a type, in natural order of their names. */
export const docsOf = <K extends keyof Docs>(view: View, type: K): Docs[K][] =>
  view.names(type).flatMap(name => view.get(type, name) ?? [])

export interface NamedController {
  readonly name: string
  readonly address: string
}

/** Cluster-wide settings that groups and nodes inherit, and facts about the controller. */
export interface ClusterSettings {
  readonly provision_method: string
  readonly provision_fallback: string
  readonly ntp_server: string
  readonly debug: boolean
  readonly technical_contacts: string
  readonly variables: VariableMap
  readonly controller: NamedController
  readonly otherControllers: readonly NamedController[]
  readonly urlAddresses: readonly string[]
  /** The URLs of svcd in boot scripts, this controller's first; undefined if unknown. */
  readonly urls?: readonly string[]
  /** Whether svcd drives the controller's DNS server, which then knows the cluster's names. */
  readonly servesDns: boolean
  /** The loader of nodes for which neither they nor their network name one; absent: ipxe. */
  readonly loader?: 'ipxe' | 'grub'
  readonly imageDirectory: string
}
