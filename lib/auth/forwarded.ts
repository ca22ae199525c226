import { createHash, randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { clocksApart, SLACK_MS } from '../ask-controller.js'
import { inTurns } from '../concurrency.js'
import { badRequest, ServiceError } from '../errors.js'
import { NOT_TAKEN } from '../http/forwards.js'
import type { HandedOn } from '../http/route.js'
import { isSameProof, proofBy, SaidOnce } from './controller-proof.js'

/** The header of a request that one controller has handed on to another. */
const HEADER = 'x-svcd-forwarded'
/** A step of the checksum of a long body: about a millisecond. */
const STEP_BYTES = 512 * 1024

/** What of a request is proved by who hands it on, beside its body. */
interface Head {
  readonly method: string
  /** Path and query, as they were sent. */
  readonly target: string
  /** Of these the token. */
  readonly headers: IncomingHttpHeaders
}

/**
 * Who asked for what one controller hands on to the one that writes: told in a header, and proved by a key that controllers alone
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
    return { [HEADER]: `${said} ${this.#proof(head, said)}` }
  }

  /**
   * The address that asked, undefined where no controller handed it on. Throws 400 for a header that is not one of a controller's, or
   * that came before, and 503 where nobody knows whether it did, it was for who wrote before, or the clocks differ. `own` and `other`: this
   * controller and the one that handed it on, for a person.
   */
  handedOn(head: Head, own = 'this controller', other = 'another one'): HandedOn | undefined {
    const { [HEADER]: header } = head.headers
    if (header === undefined) return undefined
    const [, said = '', address = '', right, time, number = '', checksum, proof = ''] =
      /^(([\da-f.:]{2,45}) (\d{1,19}) (\d{1,16}) ([\da-f]{32}) ([\da-f]{64})) ([\da-f]{64})$/.exec(
        String(header)
      ) ?? []
    if (said === '' || !isSameProof(this.#proof(head, said), proof))
      throw badRequest(`the header ${HEADER} is for controllers of this cluster: leave it out`)
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
      throw badRequest(`the header ${HEADER} came before, and counts once: leave it out`)
    const checkBody = async (body: Uint8Array) => {
      if ((await checksumOf(body)) !== checksum)
        throw badRequest(`the header ${HEADER} is that of a request with another body: leave it out`)
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
