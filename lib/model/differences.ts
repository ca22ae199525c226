import { isDeepStrictEqual } from 'node:util'
import type { Change } from '../store/types.js'
import { secretMask } from './field.js'
import { objectTypes } from './types.js'

/** A field before and after a change; null if not set. `BOOTIF.ipaddress` is a field of an interface. */
export interface Difference {
  readonly field: string
  readonly before: unknown
  readonly after: unknown
}

type Fields = Readonly<Record<string, unknown>>

/** Returns the fields that a change alters, secrets masked; for a new or deleted object all its fields. */
export function differences({ type, before = {}, after = {} }: Change): Difference[] {
  const [was, is] = [flat(before), flat(after)]
  const [shownBefore, shownAfter] = [flat(masked(type, before)), flat(masked(type, after))]
  const keys = new Set([...Object.keys(was), ...Object.keys(is)])
  keys.delete('name')
  return [...keys]
    .filter(key => !isDeepStrictEqual(was[key], is[key]))
    .map(field => ({ field, before: shownBefore[field] ?? null, after: shownAfter[field] ?? null }))
}

/** Returns the fields of an object, with those of each interface as fields of their own. */
function flat(doc: object): Fields {
  const { interfaces, ...fields } = doc as Fields & { readonly interfaces?: readonly Fields[] }
  const entries = (interfaces ?? []).flatMap(({ interface: of, ...rest }) =>
    Object.entries(rest).map(([field, value]) => [`${of}.${field}`, value] as const)
  )
  return { ...fields, ...Object.fromEntries(entries) }
}

/** Returns an object's fields with secrets masked. */
export function masked(type: string, doc: object): Fields {
  const fields: Record<string, unknown> = { ...doc }
  if (Object.hasOwn(objectTypes, type)) {
    for (const { name, secret } of objectTypes[type as keyof typeof objectTypes].fields)
      if (secret && fields[name] !== undefined) fields[name] = secretMask
  } else if (type === 'secrets' && fields.secrets !== undefined)
    fields.secrets = (fields.secrets as readonly object[]).map(entry => ({ ...entry, content: secretMask }))
  return fields
}
