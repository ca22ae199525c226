import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { clocksApart, SLACK_MS } from '../ask-controller.js'
import { inTurns } from '../concurrency.js'
import { badRequest, ServiceError, unauthorized } from '../errors.js'
import { NOT_TAKEN } from '../http/forwards.js'
import type { HandedOn } from '../http/route.js'

/** The proof that one who has the key has said this, in hexadecimal digits. */
const proofBy = (key: Uint8Array, said: readonly unknown[]): string =>
  createHmac('sha256', key).update(JSON.stringify(said)).digest('hex')

/** Whether two proofs are the same, in a time that does not tell where they differ. */
function isSameProof(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** The random numbers of what controllers have said: each counts once. Nobody but controllers makes it grow, as it is given only what is proved. */
export class SaidOnce {
  /** The minute in which the time of what was said is over → its numbers: whatever a clock does, a whole minute is forgotten at once. */
  readonly #numbers = new Map<number, Set<string>>()

  #lastMs: number

  /** `since`: of what was said before it nothing is known here. */
  constructor(private since: number) {
    this.#lastMs = since
  }

  /** Whether what was said at that time may have come before, to an svcd that has ended. */
  isForgotten(saidMs: number, now: number): boolean {
    // The start goes back with the clock: otherwise all that is said is refused until the time of the start has come again.
    this.since -= Math.max(0, this.#lastMs - now)
    this.#lastMs = now
    return saidMs < this.since
  }

  /** Whether this number, of what was said at `saidMs`, is a new one. `number`: in hexadecimal digits. */
  take(number: string, saidMs: number, now: number): boolean {
    for (const minute of this.#numbers.keys())
      if ((minute + 1) * SLACK_MS <= now) this.#numbers.delete(minute)
    const minute = Math.floor((saidMs + SLACK_MS) / SLACK_MS)
    const numbers = this.#numbers.get(minute) ?? new Set()
    this.#numbers.set(minute, numbers)
    // A text of its own: a piece of a header would keep the whole header in memory.
    const own = Buffer.from(number, 'hex').toString('latin1')
    if (numbers.has(own)) return false
    numbers.add(own)
    return true
  }

  /** How many are kept. */
  get size(): number {
    return [...this.#numbers.values()].reduce((sum, { size }) => sum + size, 0)
  }
}

/** The header by which one controller asks another. */
const HEADER = 'x-svcd-controller'

/**
 * Proves questions of controllers to one another, and their answers, by a key that controllers alone have. A question counts once,
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
      throw unauthorized('controllers of this cluster alone may ask for this', 'unproven-controller')
    const now = this.now()
    const aheadMs = Number(time) - now
    if (Math.abs(aheadMs) > SLACK_MS)
      throw unauthorized(
        clocksApart('this controller', 'the controller that asks', aheadMs),
        'unproven-controller'
      )
    if (this.#taken.isForgotten(Number(time), now))
      throw unauthorized(
        'this was asked before svcd was started here, by the clock of who asks: it is asked again, or the clocks differ',
        'unproven-controller'
      )
    if (!this.#taken.take(number, Number(time), now))
      throw unauthorized('this was asked before, and is answered once', 'unproven-controller')
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

/** The header of a request that one controller has handed on to another. */
const FORWARDED = 'x-svcd-forwarded'
/** A step of the checksum of a long body: about a millisecond. */
const STEP_BYTES = 512 * 1024

/** The parts of a request that are proved by the controller that hands it on, beside its body. */
interface Head {
  readonly method: string
  /** Path and query, as they were sent. */
  readonly target: string
  /** Of these the token. */
  readonly headers: IncomingHttpHeaders
}

/**
 * Tells in a header who asked for a request that a controller hands on to the one that writes, and proves it by a key that controllers alone
 * have, for one request with one body, and for one right to write.
 */
export class ForwardedRequests {
  readonly #taken: SaidOnce

  /** `key`: for this purpose alone. `right`: the right to write that this controller has. `now`: milliseconds since 1970. */
  constructor(
    private readonly key: Uint8Array,
    private readonly right: () => string | undefined,
    private readonly now: () => number
  ) {
    this.#taken = new SaidOnce(now())
  }

  /** The headers that tell the controller that has this right to write that this address asked, with this body. No other request has the same. */
  async headersFor(
    right: string,
    head: Head,
    address: string,
    body: Uint8Array
  ): Promise<Record<string, string>> {
    const checksum = await checksumOf(body)
    const said = `${address} ${right} ${this.now()} ${randomBytes(16).toString('hex')} ${checksum}`
    return { [FORWARDED]: `${said} ${this.#proof(head, said)}` }
  }

  /**
   * The address that asked, undefined where no controller handed it on. Throws 400 for a header that is not one of a controller's, or
   * that came before, and 503 where nobody knows whether it did, it was for who wrote before, or the clocks differ. `own` and `other`: this
   * controller and the one that handed it on, for a person.
   */
  handedOn(head: Head, own = 'this controller', other = 'another one'): HandedOn | undefined {
    const { [FORWARDED]: header } = head.headers
    if (header === undefined) return undefined
    const [, said = '', address = '', right, time, number = '', checksum, proof = ''] =
      /^(([\da-f.:]{2,45}) (\d{1,19}) (\d{1,16}) ([\da-f]{32}) ([\da-f]{64})) ([\da-f]{64})$/.exec(
        String(header)
      ) ?? []
    if (said === '' || !isSameProof(this.#proof(head, said), proof))
      throw badRequest(
        `the header ${FORWARDED} is for controllers of this cluster: leave it out`,
        'invalid-http'
      )
    // Before all else: who begins to write has taken none of those that were for another one.
    if (right !== this.right())
      throw again('this was handed on to a controller that writes, and this one does not, or anew', '', {
        [NOT_TAKEN]: 'yes'
      })
    const now = this.now()
    const aheadMs = Number(time) - now
    if (Math.abs(aheadMs) > SLACK_MS)
      throw again(
        `${clocksApart(own, other, aheadMs)}${aheadMs < 0 ? '; or it was on its way for so long' : ''}`
      )
    if (this.#taken.isForgotten(Number(time), now))
      throw again(
        'this was handed on before svcd was started here, by the clock of the other controller',
        ', or set the clocks by time synchronisation'
      )
    if (!this.#taken.take(number, Number(time), now))
      throw badRequest(`the header ${FORWARDED} came before, and counts once: leave it out`, 'invalid-http')
    const checkBody = async (body: Uint8Array) => {
      if ((await checksumOf(body)) !== checksum)
        throw badRequest(
          `the header ${FORWARDED} is that of a request with another body: leave it out`,
          'invalid-http'
        )
    }
    return { address, checkBody }
  }

  #proof({ method, target, headers }: Head, said: string): string {
    return proofBy(this.key, [method, target, said, headers['x-access-tokens'] ?? ''])
  }
}

const again = (why: string, wayOut = '', headers: Readonly<Record<string, string>> = {}) =>
  new ServiceError(503, `${why}: try again${wayOut}`, { 'Retry-After': '5', ...headers })

/** SHA-256 in hexadecimal digits. */
const checksumOf = (body: Uint8Array): Promise<string> => inTurns(checksumming(body))

function* checksumming(body: Uint8Array): Generator<undefined, string> {
  const hash = createHash('sha256')
  for (let at = 0; at < body.length; at += STEP_BYTES) {
    hash.update(body.subarray(at, at + STEP_BYTES))
    yield
  }
  return hash.digest('hex')
}
