import { createHmac, randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { badRequest } from '../base/errors.js'
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

/** A digest is valid until the process ends. The random key keeps callers from guessing masked fields. */
const digestKey = randomBytes(32)
const digest = (text: string) => createHmac('sha256', digestKey).update(text).digest('hex').slice(0, 32)

/**
 * Digests what changes replace, in any order, and the interfaces that they make, because their addresses
 * depend on other changes. Two runs of one request give the same digest if they have the same effect.
 */
export function* digestChanges(changes: readonly Change[]): Generator<void, string> {
  const parts: string[] = []
  for (const { type, name, before, after } of changes) {
    yield
    const { interfaces } = (after ?? {}) as { readonly interfaces?: unknown }
    parts.push(digest(JSON.stringify([type, name, before ?? null, interfaces ?? null])))
  }
  return digest(parts.sort().join())
}

/** Throws 400 if a dry run had another digest than these changes; undefined: there was none. */
export function* checkDigest(
  changes: readonly Change[],
  expected: string | undefined,
  what: 'change' | 'import'
): Generator<void> {
  if (expected !== undefined && (yield* digestChanges(changes)) !== expected)
    throw badRequest(
      `${what} refused: something has changed since the dry run; make it again`,
      'outdated-dry-run'
    )
}
