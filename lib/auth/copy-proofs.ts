import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { unauthorized } from '../errors.js'
import { clocksApart, isSameProof, proofBy, SLACK_MS } from './controller-proof.js'

/** The header by which a controller asks another one for a file. */
const HEADER = 'x-svcd-controller'
/** What one controller tells another of a file. */
interface Told {
  readonly bytes: number
  /** In hexadecimal digits. */
  readonly sha256: string
}

/**
 * Who asks for a copy of a file, and what is told of it, proved by a key that controllers alone have. What is told is an
 * answer to one question: it is no answer to another one.
 */
export class CopyProofs {
  readonly #key: Uint8Array
  readonly #now: () => number

  /** `key`: for this purpose alone. `now`: milliseconds since 1970. */
  constructor(key: Uint8Array, now: () => number) {
    this.#key = key
    this.#now = now
  }

  /** The headers of a question for this path and query. No other question has the same. */
  headersFor(target: string): Record<string, string> {
    const said = `${this.#now()} ${randomBytes(16).toString('hex')}`
    return { [HEADER]: `${said} ${this.#proof('asked', target, said)}` }
  }

  /** Throws 401 where no controller of this cluster has asked this. */
  check(target: string, { [HEADER]: header }: IncomingHttpHeaders): void {
    const [, said = '', time, proof = ''] =
      /^((\d{1,16}) [\da-f]{32}) ([\da-f]{64})$/.exec(String(header ?? '')) ?? []
    if (said === '' || !isSameProof(this.#proof('asked', target, said), proof))
      throw unauthorized('controllers of this cluster alone may ask for this')
    if (Math.abs(this.#now() - Number(time)) > SLACK_MS) throw unauthorized(clocksApart)
  }

  /** The proof of what is told in answer to a question with these headers. */
  proofOf(asked: IncomingHttpHeaders, { bytes, sha256 }: Told): string {
    return this.#proof('told', String(asked[HEADER]), `${bytes} ${sha256}`)
  }

  /** Whether a controller of this cluster has told this in answer to that question. */
  isProved(asked: IncomingHttpHeaders, told: Told, proof: string): boolean {
    return isSameProof(this.proofOf(asked, told), proof)
  }

  #proof(...said: readonly string[]): string {
    return proofBy(this.#key, said)
  }
}
