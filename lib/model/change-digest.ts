import { createHmac, randomBytes } from 'node:crypto'
import { badRequest } from '../base/errors.js'
import type { Change } from '../store/types.js'

/** A digest is valid until the process ends. The random key keeps callers from guessing masked fields. */
const key = randomBytes(32)
const digest = (text: string) => createHmac('sha256', key).update(text).digest('hex').slice(0, 32)

/**
 * A digest of what a change replaces and of the interfaces that it makes, because their addresses depend on
 * other changes. Two runs of one request give the same digest if they have the same effect.
 */
export class ChangeDigest {
  readonly #parts: string[] = []

  add({ type, name, before, after }: Change): void {
    const { interfaces } = (after ?? {}) as { readonly interfaces?: unknown }
    this.#parts.push(digest(JSON.stringify([type, name, before ?? null, interfaces ?? null])))
  }

  /** The digest of all added changes, in any order. */
  get text(): string {
    return digest(this.#parts.sort().join())
  }

  /** Throws 400 unless the digest equals that of the dry run. */
  check(expected: string, what = 'import'): void {
    if (this.text !== expected)
      throw badRequest(
        `${what} refused: something has changed since the dry run; make it again`,
        'outdated-dry-run'
      )
  }
}

/** Digests changes, one per step. */
export function* digestChanges(changes: readonly Change[]): Generator<void, ChangeDigest> {
  const mark = new ChangeDigest()
  for (const change of changes) {
    yield
    mark.add(change)
  }
  return mark
}
