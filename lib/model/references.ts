import type { TypeName } from './field.js'
import type { InterfaceDoc } from './tables.js'
import { objectTypes } from './types.js'

/** An object by type and name. */
export interface Ref {
  readonly type: TypeName
  readonly name: string
}

/** One text for a reference: no name holds a slash. */
export const refKey = (ref: Ref) => `${ref.type}/${ref.name}`

type Fields = Readonly<Record<string, unknown>> & { readonly interfaces?: readonly InterfaceDoc[] }

/** The objects that a stored object names, each once (decisions 3.2). */
export function referencesOf(type: TypeName, doc: object): Ref[] {
  const fields = doc as Fields
  const found = new Map<string, Ref>()
  const add = (to: TypeName, name: unknown) => {
    if (typeof name !== 'string') return
    const ref = { type: to, name }
    found.set(refKey(ref), ref)
  }
  for (const field of objectTypes[type].fields) if (field.refers) add(field.refers, fields[field.name])
  for (const entry of fields.interfaces ?? []) add('network', entry.network)
  return [...found.values()]
}

/** The same object with every mention of `from` turned into `to`. */
export function renameReference<D extends object>(type: TypeName, doc: D, from: Ref, to: string): D {
  const fields: Record<string, unknown> = { ...(doc as Fields) }
  for (const field of objectTypes[type].fields)
    if (field.refers === from.type && fields[field.name] === from.name) fields[field.name] = to
  const interfaces = (doc as Fields).interfaces
  if (interfaces && from.type === 'network')
    fields.interfaces = interfaces.map(entry =>
      entry.network === from.name ? { ...entry, network: to } : entry
    )
  return fields as D
}
