import { createHmac, randomBytes } from 'node:crypto'
import { badRequest } from '../errors.js'
import type { Change } from '../store/types.js'

/** Of this process: a mark is good until it ends, and nobody finds out a masked field by trying. */
const key = randomBytes(32)
const digest = (text: string) => createHmac('sha256', key).update(text).digest('hex').slice(0, 32)

/**
 * Stands for what a change would replace, and for the interfaces that it would make: addresses may be given to others
 * meanwhile. It is the same for two runs of one request where both are. What else comes in their place follows from both.
 */
export class Mark {
  readonly #parts: string[] = []

  add({ type, name, before, after }: Change): void {
    const { interfaces } = (after ?? {}) as { readonly interfaces?: unknown }
    this.#parts.push(digest(JSON.stringify([type, name, before ?? null, interfaces ?? null])))
  }

  /** Of all changes that were added, in whatever order. */
  get text(): string {
    return digest(this.#parts.sort().join())
  }

  /** Throws 400 where it is not the one that a dry run told. */
  check(expected: string): void {
    if (this.text !== expected)
      throw badRequest(
        'import refused: something has changed since the dry run; make it again',
        'outdated-dry-run'
      )
  }
}

/** The mark of changes, in steps: there may be many. */
export function* marked(changes: readonly Change[]): Generator<void, Mark> {
  const mark = new Mark()
  for (const change of changes) {
    yield
    mark.add(change)
  }
  return mark
}
