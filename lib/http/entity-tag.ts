import { createHash, type Hash, hash } from 'node:crypto'
import { runSync } from '../base/concurrency.js'
import { badRequest } from '../base/errors.js'

/** Characters of each of the two digests: 132 bits. */
const DIGEST_CHARACTERS = 22
/** Texts are gathered to pieces of this length: digesting many short ones costs more for the calls. */
const PIECE_CHARACTERS = 65_536

/** A part of what it is made from: the configuration, and what else the answer shows. */
export type EntityTagPart = readonly [state: string, more: string]

type Made = Readonly<Record<'state' | 'rest', string>>

/**
 * The entity tag of an answer: `STATE.REST` (rules 2.21). STATE is a digest of the configuration that the
 * answer shows, and If-Match compares it; REST is one of all else: reported states, fields, format, dialect.
 */
export class EntityTag {
  #made: Made | undefined

  /** `parts` is asked once, and yields '' for a pause. `form` tells views of one thing from each other. */
  constructor(
    private readonly parts: () => Iterable<EntityTagPart | ''>,
    private readonly form: string
  ) {}

  /** Makes it in steps, a part in each. */
  *making(): Generator<''> {
    const [state, rest] = [new Digest(), new Digest()]
    rest.add(this.form)
    for (const part of this.parts()) {
      if (part !== '') {
        state.add(part[0])
        rest.add(part[1])
      }
      yield ''
    }
    this.#made = { state: state.text(), rest: rest.text() }
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
  #parts(): Made {
    if (!this.#made) runSync(this.making())
    return this.#made as Made
  }
}

/** A digest of texts, one after the other. */
class Digest {
  #piece = ''
  #hash: Hash | undefined

  add(text: string): void {
    this.#piece += text
    if (this.#piece.length < PIECE_CHARACTERS) return
    this.#hash ??= createHash('sha256')
    this.#hash.update(this.#piece)
    this.#piece = ''
  }

  text(): string {
    const made = this.#hash
      ? this.#hash.update(this.#piece).digest('base64url')
      : hash('sha256', this.#piece, 'base64url')
    return made.slice(0, DIGEST_CHARACTERS)
  }
}

/** Reads If-Match: `*`, or the STATE of each strong tag; a weak one never matches. Throws 400 otherwise. */
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
