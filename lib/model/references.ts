import type { Field, TypeName } from './field.js'
import type { InterfaceDoc } from './tables.js'
import { objectTypes } from './types.js'

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

/** The fields by which each type names an object. */
const referring = Object.fromEntries(
  Object.values(objectTypes).map(({ type, fields }) => [type, fields.filter(field => field.refers)])
) as unknown as Readonly<Record<TypeName, readonly Field[]>>

type Fields = Readonly<Record<string, unknown>> & { readonly interfaces?: readonly InterfaceDoc[] }

/** The objects that a stored object names, each once (rules 3.2). */
export function referencesOf(type: TypeName, doc: object): Mention[] {
  const fields = doc as Fields
  const found = new Map<string, Mention>()
  const add = (to: TypeName, name: unknown, soft = false) => {
    if (typeof name !== 'string') return
    const ref = { type: to, name, soft }
    found.set(refKey(ref), ref)
  }
  for (const field of referring[type]) if (field.refers) add(field.refers, fields[field.name], field.soft)
  for (const entry of fields.interfaces ?? []) add('network', entry.network)
  return [...found.values()]
}

/** The same object with every mention of `from` turned into `to`. */
export function renameReference<D extends object>(type: TypeName, doc: D, from: Ref, to: string): D {
  const fields: Record<string, unknown> = { ...(doc as Fields) }
  for (const field of referring[type])
    if (field.refers === from.type && fields[field.name] === from.name) fields[field.name] = to
  const interfaces = (doc as Fields).interfaces
  if (interfaces && from.type === 'network')
    fields.interfaces = interfaces.map(entry =>
      entry.network === from.name ? { ...entry, network: to } : entry
    )
  return fields as D
}
