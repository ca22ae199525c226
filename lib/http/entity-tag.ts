import { createHash } from 'node:crypto'
import { badRequest } from '../base/errors.js'

/** Characters of each of the two digests: 132 bits. */
const DIGEST_CHARACTERS = 22

/** A part of what it is made from: the configuration, and what else the answer shows. */
export type EntityTagPart = readonly [state: string, more: string]

/**
 * The entity tag of an answer: `STATE.REST` (rules 2.21). STATE is a digest of the configuration that the
 * answer shows, and If-Match compares it; REST is one of all else: reported states, fields, format, dialect.
 */
export class EntityTag {
  #made: { readonly state: string; readonly rest: string } | undefined

  /** `parts` is asked once, and yields '' for a pause. `form` tells views of one thing from each other. */
  constructor(
    private readonly parts: () => Iterable<EntityTagPart | ''>,
    private readonly form: string
  ) {}

  /** Makes it in steps, a part in each. */
  *making(): Generator<''> {
    if (this.#made) return
    const [state, rest] = [createHash('sha256'), createHash('sha256').update(this.form)]
    for (const part of this.parts()) {
      if (part !== '') {
        state.update(part[0])
        rest.update(part[1])
      }
      yield ''
    }
    const [made, more] = [state, rest].map(hash => hash.digest('base64url').slice(0, DIGEST_CHARACTERS))
    this.#made = { state: made as string, rest: more as string }
  }

  get state(): string {
    return this.#parts().state
  }

  /** The value of the header ETag. `coding` is appended for an answer in that coding. */
  header(coding = ''): string {
    const { state, rest } = this.#parts()
    return `"${state}.${rest}${coding}"`
  }

  /** Makes what is missing in one go: of one object, that is short. */
  #parts() {
    for (const _ of this.making());
    return this.#made as { readonly state: string; readonly rest: string }
  }
}

/**
 * Reads If-Match: the STATE of each strong tag, or `*`. A weak tag (`W/"…"`) never matches, so it is dropped.
 * Throws 400 for anything else.
 */
export function readIfMatch(header: string): '*' | readonly string[] {
  if (header.trim() === '*') return '*'
  const states: string[] = []
  const entry = /[ \t]*(W\/)?"([!#-~\x80-\xff]*)"[ \t]*(,|$)/y
  for (;;) {
    const [, weak, tag = '', end] = entry.exec(header) ?? []
    if (end === undefined)
      throw badRequest(
        'header If-Match: it must be * or tags in quotes with commas between them, each as the ETag of an ' +
          'answer: If-Match: "…"',
        'invalid-http'
      )
    if (weak === undefined) states.push(tag.split('.', 1)[0] as string)
    if (end === '') return states
  }
}
