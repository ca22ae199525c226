import type { IncomingHttpHeaders } from 'node:http'
import { badRequest } from '../errors.js'
import { clocksApart, isSameProof, proofBy, SLACK_MS } from './controller-proof.js'

/** The header of a request that one controller has handed on to another. */
const HEADER = 'x-svcd-forwarded'

/** What of a request is proved by who hands it on. */
interface Head {
  readonly method: string
  /** Path and query, as they were sent. */
  readonly target: string
  /** Of these the token. */
  readonly headers: IncomingHttpHeaders
}

/** Who asked for what one controller hands on to another: told in a header, and proved by a key that controllers alone have. */
export class ForwardedRequests {
  readonly #key: Uint8Array
  readonly #now: () => number

  /** `key`: for this purpose alone. `now`: milliseconds since 1970. */
  constructor(key: Uint8Array, now: () => number) {
    this.#key = key
    this.#now = now
  }

  /** The headers that tell that this address asked. */
  headersFor(head: Head, address: string): Record<string, string> {
    const said = `${address} ${this.#now()}`
    return { [HEADER]: `${said} ${this.#proof(head, said)}` }
  }

  /** The address that asked, undefined where no controller handed it on. Throws 400 for a header that is not one of a controller's. */
  addressIn(head: Head): string | undefined {
    const { [HEADER]: header } = head.headers
    if (header === undefined) return undefined
    const [, said = '', address = '', time, proof = ''] =
      /^(([\da-f.:]{2,45}) (\d{1,16})) ([\da-f]{64})$/.exec(String(header)) ?? []
    if (said === '' || !isSameProof(this.#proof(head, said), proof))
      throw badRequest(`the header ${HEADER} is for controllers of this cluster: leave it out`)
    if (Math.abs(this.#now() - Number(time)) > SLACK_MS) throw badRequest(clocksApart)
    return address
  }

  #proof({ method, target, headers }: Head, said: string): string {
    return proofBy(this.#key, [method, target, said, headers['x-access-tokens'] ?? ''])
  }
}
