import type { TypeName } from './docs.js'
import type { Table } from './field.js'
import type { InterfaceDoc } from './types/interface.js'

/** An object by type and name. */
export interface Ref {
  readonly type: TypeName
  readonly name: string
}

/** A mention of an object; `soft`: it need not exist. */
export interface Mention extends Ref {
  readonly soft: boolean
}

/** One text for a reference: no name holds a slash. */
export const refKey = (ref: Ref) => `${ref.type}/${ref.name}`

type Fields = Readonly<Record<string, unknown>> & { readonly interfaces?: readonly InterfaceDoc[] }

type Referring = Table[number] & { readonly refers: TypeName }
const referringFields = new WeakMap<Table, readonly Referring[]>()

/** The fields of a table that name objects: looked up for each object of a start. */
function referring(table: Table): readonly Referring[] {
  const known = referringFields.get(table)
  if (known) return known
  const found = table.filter((field): field is Referring => field.refers !== undefined)
  referringFields.set(table, found)
  return found
}

/** The objects that a stored object of these fields names, each once (rules 3.2). */
export function referencesOf(table: Table, doc: object): Mention[] {
  const fields = doc as Fields
  const found = new Map<string, Mention>()
  const add = (type: TypeName, name: unknown, soft = false) => {
    if (typeof name !== 'string') return
    const mention = { type, name, soft }
    found.set(refKey(mention), mention)
  }
  for (const { name, refers, soft } of referring(table)) {
    const value = fields[name]
    if (!Array.isArray(value)) add(refers, value, soft)
    else for (const one of value) add(refers, one, soft)
  }
  for (const entry of fields.interfaces ?? []) add('network', entry.network)
  return [...found.values()]
}

/** The same object with every mention of `from` turned into `to`. */
export function renameReference<D extends object>(table: Table, doc: D, from: Ref, to: string): D {
  const fields: Record<string, unknown> = { ...(doc as Fields) }
  const renamed = (value: unknown) => (value === from.name ? to : value)
  for (const { name, refers } of table) {
    if (refers !== from.type || fields[name] === undefined) continue
    const value = fields[name]
    fields[name] = Array.isArray(value) ? value.map(renamed) : renamed(value)
  }
  const interfaces = (doc as Fields).interfaces
  if (interfaces && from.type === 'network')
    fields.interfaces = interfaces.map(entry =>
      entry.network === from.name ? { ...entry, network: to } : entry
    )
  return fields as D
}
