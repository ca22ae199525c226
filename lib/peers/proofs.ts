import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { runFairly } from '../base/concurrency.js'
import { badRequest, ServiceError, unauthorized } from '../base/errors.js'
import { getOrAdd } from '../base/lists.js'
import { clocksApart, SLACK_MS } from '../client/controllers.js'
import { NOT_TAKEN } from '../http/forwards.js'
import type { ForwardedCaller } from '../http/route.js'

/** HMAC of a message, hex. */
const proofBy = (key: Uint8Array, said: readonly unknown[]): string =>
  createHmac('sha256', key).update(JSON.stringify(said)).digest('hex')

/** Compares two proofs in constant time. */
function isSameProof(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Remembers the nonces of proved messages, so that each counts once. Only controllers can fill it. */
export class NonceCache {
  /** Nonces by the minute in which they expire: whole minutes are dropped, whatever the clock does. */
  readonly #nonces = new Map<number, Set<string>>()

  #lastMs: number

  /** `since`: the time before which nonces are unknown here. */
  constructor(private since: number) {
    this.#lastMs = since
  }

  /** Whether a message of that time may have been received before a restart. */
  predatesStart(saidMs: number, now: number): boolean {
    // Moves back with the clock: otherwise all messages would be refused until it reaches the old time.
    this.since -= Math.max(0, this.#lastMs - now)
    this.#lastMs = now
    return saidMs < this.since
  }

  /** Records a nonce (hex) of a message sent at `saidMs`; false if it is known. */
  add(number: string, saidMs: number, now: number): boolean {
    for (const minute of this.#nonces.keys()) if ((minute + 1) * SLACK_MS <= now) this.#nonces.delete(minute)
    const minute = Math.floor((saidMs + SLACK_MS) / SLACK_MS)
    const numbers = getOrAdd(this.#nonces, minute, () => new Set())
    // A copy: a substring would keep the whole header in memory.
    const own = Buffer.from(number, 'hex').toString('latin1')
    if (numbers.has(own)) return false
    numbers.add(own)
    return true
  }

  /** The number of nonces kept. */
  get size(): number {
    return [...this.#nonces.values()].reduce((sum, { size }) => sum + size, 0)
  }
}

const unproven = (why: string) => unauthorized(why, 'unproven-controller')

/** The header that authenticates a request between controllers. */
const HEADER = 'x-svcd-controller'

/**
 * Authenticates requests between controllers, and their answers, with a shared key. A request counts once,
 * and an answer belongs to one request.
 */
export class ControllerAuth {
  readonly #nonces: NonceCache

  /** `key`: for this purpose alone. `now`: milliseconds since 1970. */
  constructor(
    private readonly key: Uint8Array,
    private readonly now: () => number
  ) {
    this.#nonces = new NonceCache(now())
  }

  /** The headers of a request with this body, or this path and query; unique per request. */
  headersFor(words: string): Record<string, string> {
    const said = `${this.now()} ${randomBytes(16).toString('hex')}`
    return { [HEADER]: `${said} ${this.#proof('asked', words, said)}` }
  }

  /** Throws 401 unless a controller of this cluster sent this, for the first time, and since our start. */
  verifyRequest(words: string, { [HEADER]: header }: IncomingHttpHeaders): void {
    const [, said = '', time, number = '', proof = ''] =
      /^((\d{1,16}) ([\da-f]{32})) ([\da-f]{64})$/.exec(String(header ?? '')) ?? []
    if (said === '' || !isSameProof(this.#proof('asked', words, said), proof))
      throw unproven('controllers of this cluster alone may ask for this')
    const now = this.now()
    const aheadMs = Number(time) - now
    if (Math.abs(aheadMs) > SLACK_MS)
      throw unproven(clocksApart('this controller', 'the controller that asks', aheadMs))
    if (this.#nonces.predatesStart(Number(time), now))
      throw unproven(
        'this was asked before svcd was started here, by the clock of who asks: ' +
          'it is asked again, or the clocks differ'
      )
    if (!this.#nonces.add(number, Number(time), now))
      throw unproven('this was asked before, and is answered once')
  }

  /** The proof of the answer to a request with these headers. */
  signAnswer(asked: IncomingHttpHeaders, answer: string): string {
    return this.#proof('answered', String(asked[HEADER]), answer)
  }

  /** Whether a controller of this cluster gave this answer to that request. */
  isAnswerAuthentic(asked: IncomingHttpHeaders, answer: string, proof: string): boolean {
    return isSameProof(this.signAnswer(asked, answer), proof)
  }

  #proof(...said: readonly string[]): string {
    return proofBy(this.key, said)
  }
}

/** The header of a forwarded request. */
const FORWARDED = 'x-svcd-forwarded'
/** Bytes hashed per step: about a millisecond. */
const STEP_BYTES = 512 * 1024

/** The parts of a request that the forwarding controller proves, besides the body. */
interface Head {
  readonly method: string
  /** Path and query as sent. */
  readonly target: string
  /** Only the token of these. */
  readonly headers: IncomingHttpHeaders
}

/**
 * Authenticates forwarded requests: a header tells the leader the client's address, proved with the
 * controllers' shared key, for one request with one body and one fencing token.
 */
export class ForwardAuth {
  readonly #nonces: NonceCache

  /** `key`: for this purpose alone. `token`: our fencing token. `now`: milliseconds since 1970. */
  constructor(
    private readonly key: Uint8Array,
    private readonly token: () => string | undefined,
    private readonly now: () => number
  ) {
    this.#nonces = new NonceCache(now())
  }

  /** The headers of a request of this address with this body, for the leader with this token; unique. */
  async headersFor(
    token: string,
    head: Head,
    address: string,
    body: Uint8Array
  ): Promise<Record<string, string>> {
    const checksum = await checksumOf(body)
    const said = `${address} ${token} ${this.now()} ${randomBytes(16).toString('hex')} ${checksum}`
    return { [FORWARDED]: `${said} ${this.#proof(head, said)}` }
  }

  /**
   * Returns the client's address; undefined if the request was not forwarded. Throws 400 for an invalid or
   * repeated header, and 503 if it may be a repetition, was for an earlier leader, or the clocks differ.
   * `own` and `other` name this controller and the forwarding one in messages.
   */
  verify(head: Head, own = 'this controller', other = 'another one'): ForwardedCaller | undefined {
    const { [FORWARDED]: header } = head.headers
    if (header === undefined) return undefined
    const [, said = '', address = '', token, time, number = '', checksum, proof = ''] =
      /^(([\da-f.:]{2,45}) (\d{1,19}) (\d{1,16}) ([\da-f]{32}) ([\da-f]{64})) ([\da-f]{64})$/.exec(
        String(header)
      ) ?? []
    if (said === '' || !isSameProof(this.#proof(head, said), proof))
      throw badRequest(
        `the header ${FORWARDED} is for controllers of this cluster: leave it out`,
        'invalid-http'
      )
    // Checked first: a new leader has taken no request that was meant for its predecessor.
    if (token !== this.token())
      throw retryLater('the primary has changed since this was handed on', '', { [NOT_TAKEN]: 'yes' })
    const now = this.now()
    const aheadMs = Number(time) - now
    if (Math.abs(aheadMs) > SLACK_MS)
      throw retryLater(
        `${clocksApart(own, other, aheadMs)}${aheadMs < 0 ? '; or it was on its way for so long' : ''}`
      )
    if (this.#nonces.predatesStart(Number(time), now))
      throw retryLater(
        'this was handed on before svcd was started here, by the clock of the other controller',
        ', or set the clocks by time synchronisation'
      )
    if (!this.#nonces.add(number, Number(time), now))
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
    const token = headers['x-access-tokens'] || headers.authorization || ''
    return proofBy(this.key, [method, target, said, token])
  }
}

const retryLater = (why: string, wayOut = '', headers: Readonly<Record<string, string>> = {}) =>
  new ServiceError(503, `${why}: try again${wayOut}`, { 'Retry-After': '5', ...headers })

/** SHA-256, hex. */
const checksumOf = (body: Uint8Array): Promise<string> => runFairly(checksumming(body))

function* checksumming(body: Uint8Array): Generator<undefined, string> {
  const hash = createHash('sha256')
  for (let at = 0; at < body.length; at += STEP_BYTES) {
    hash.update(body.subarray(at, at + STEP_BYTES))
    yield
  }
  return hash.digest('hex')
}
