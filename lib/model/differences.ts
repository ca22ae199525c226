import { isDeepStrictEqual } from 'node:util'
import type { Change } from '../store/types.js'
import { hidden } from './field.js'
import { objectTypes } from './types.js'

/** One field before and after a change; null where it is not set. `BOOTIF.ipaddress` is a field of an interface. */
export interface Difference {
  readonly field: string
  readonly before: unknown
  readonly after: unknown
}

type Fields = Readonly<Record<string, unknown>>

/** The fields that a change makes another, secrets hidden; of a new object and of a deleted one all that are set. */
export function differences({ type, before, after }: Change): Difference[] {
  const [was, is] = [flat(before ?? {}), flat(after ?? {})]
  const keys = new Set([...Object.keys(was), ...Object.keys(is)])
  keys.delete('name')
  const shown = (field: string, value: unknown) => (value === undefined ? null : masked(type, field, value))
  return [...keys]
    .filter(key => !isDeepStrictEqual(was[key], is[key]))
    .map(field => ({ field, before: shown(field, was[field]), after: shown(field, is[field]) }))
}

/** The fields of an object, those of its interfaces each by itself. */
function flat(doc: object): Fields {
  const { interfaces, ...fields } = doc as Fields & { readonly interfaces?: readonly Fields[] }
  const entries = (interfaces ?? []).flatMap(({ interface: of, ...rest }) =>
    Object.entries(rest).map(([field, value]) => [`${of}.${field}`, value] as const)
  )
  return { ...fields, ...Object.fromEntries(entries) }
}

function masked(type: string, field: string, value: unknown): unknown {
  const { fields } = (Object.hasOwn(objectTypes, type)
    ? objectTypes[type as keyof typeof objectTypes]
    : undefined) ?? {
    fields: []
  }
  if (fields.some(({ name, secret }) => name === field && secret)) return hidden
  if (type !== 'secrets' || !Array.isArray(value)) return value
  return value.map((entry: Fields) => ({ ...entry, content: hidden }))
}
