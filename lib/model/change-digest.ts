import { createHmac, randomBytes } from 'node:crypto'
import { badRequest } from '../base/errors.js'
import type { Change } from '../store/types.js'

/** A digest is valid until the process ends. The random key keeps callers from guessing masked fields. */
const key = randomBytes(32)
const digest = (text: string) => createHmac('sha256', key).update(text).digest('hex').slice(0, 32)

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
