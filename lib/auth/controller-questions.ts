import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { clocksApart, SLACK_MS } from '../ask-controller.js'
import { unauthorized } from '../errors.js'
import { isSameProof, proofBy, SaidOnce } from './controller-proof.js'

/** The header by which one controller asks another. */
const HEADER = 'x-svcd-controller'

/**
 * What controllers ask one another, and what is answered, proved by a key that controllers alone have. A question counts once,
 * and an answer is that to one question.
 */
export class ControllerQuestions {
  readonly #taken: SaidOnce

  /** `key`: for one purpose alone. `now`: milliseconds since 1970. */
  constructor(
    private readonly key: Uint8Array,
    private readonly now: () => number
  ) {
    this.#taken = new SaidOnce(now())
  }

  /** The headers of a question with these words: its body, or its path and query. No other question has the same. */
  headersFor(words: string): Record<string, string> {
    const said = `${this.now()} ${randomBytes(16).toString('hex')}`
    return { [HEADER]: `${said} ${this.#proof('asked', words, said)}` }
  }

  /** Throws 401 where no controller of this cluster has asked this, or it was asked before: a start of svcd is that for all before it. */
  check(words: string, { [HEADER]: header }: IncomingHttpHeaders): void {
    const [, said = '', time, number = '', proof = ''] =
      /^((\d{1,16}) ([\da-f]{32})) ([\da-f]{64})$/.exec(String(header ?? '')) ?? []
    if (said === '' || !isSameProof(this.#proof('asked', words, said), proof))
      throw unauthorized('controllers of this cluster alone may ask for this')
    const now = this.now()
    const aheadMs = Number(time) - now
    if (Math.abs(aheadMs) > SLACK_MS)
      throw unauthorized(clocksApart('this controller', 'the controller that asks', aheadMs))
    if (this.#taken.isForgotten(Number(time), now))
      throw unauthorized(
        'this was asked before svcd was started here, by the clock of who asks: it is asked again, or the clocks differ'
      )
    if (!this.#taken.take(number, Number(time), now))
      throw unauthorized('this was asked before, and is answered once')
  }

  /** The proof of what is answered to a question with these headers. */
  proofOf(asked: IncomingHttpHeaders, answer: string): string {
    return this.#proof('answered', String(asked[HEADER]), answer)
  }

  /** Whether a controller of this cluster has answered this to that question. */
  isProved(asked: IncomingHttpHeaders, answer: string, proof: string): boolean {
    return isSameProof(this.proofOf(asked, answer), proof)
  }

  #proof(...said: readonly string[]): string {
    return proofBy(this.key, said)
  }
}
