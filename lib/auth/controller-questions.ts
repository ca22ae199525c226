import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { unauthorized } from '../errors.js'
import { clocksApart, isSameProof, proofBy, SLACK_MS } from './controller-proof.js'

/** The header by which the controller that writes asks another one to work. */
const HEADER = 'x-svcd-errand'

/**
 * Who asks a controller to work, and how that ended, proved by a key that controllers alone have. What is asked counts once, and how it
 * ended is the answer to that one question.
 */
export class ErrandProofs {
  readonly #key: Uint8Array
  readonly #now: () => number
  /** What was asked so far → when its time is over, in the order in which it came. Only what is proved is kept. */
  readonly #seen = new Map<string, number>()

  /** `key`: for this purpose alone. `now`: milliseconds since 1970. */
  constructor(key: Uint8Array, now: () => number) {
    this.#key = key
    this.#now = now
  }

  /** The headers of a question with this body. No other question has the same. */
  headersFor(body: string): Record<string, string> {
    const said = `${this.#now()} ${randomBytes(16).toString('hex')}`
    return { [HEADER]: `${said} ${this.#proof('asked', body, said)}` }
  }

  /** Throws 401 where no controller of this cluster has asked this, or it was asked before. */
  check(body: string, { [HEADER]: header }: IncomingHttpHeaders): void {
    const [, said = '', time, proof = ''] =
      /^((\d{1,16}) [\da-f]{32}) ([\da-f]{64})$/.exec(String(header ?? '')) ?? []
    if (said === '' || !isSameProof(this.#proof('asked', body, said), proof))
      throw unauthorized('controllers of this cluster alone may ask for this')
    const now = this.#now()
    if (Math.abs(now - Number(time)) > SLACK_MS) throw unauthorized(clocksApart)
    for (const [old, until] of this.#seen) if (until < now) this.#seen.delete(old)
    if (this.#seen.has(said)) throw unauthorized('this was asked before, and is done once')
    this.#seen.set(said, Number(time) + SLACK_MS)
  }

  /** The proof of how that ended which was asked with these headers. */
  proofOf(asked: IncomingHttpHeaders, end: string): string {
    return this.#proof('ended', String(asked[HEADER]), end)
  }

  /** Whether a controller of this cluster has told this in answer to that question. */
  isProved(asked: IncomingHttpHeaders, end: string, proof: string): boolean {
    return isSameProof(this.proofOf(asked, end), proof)
  }

  #proof(...said: readonly string[]): string {
    return proofBy(this.#key, said)
  }
}
