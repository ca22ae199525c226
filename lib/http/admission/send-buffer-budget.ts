import type { Socket } from 'node:net'
import type { Log } from '../../base/log.js'
import { ThrottledWarning } from '../../base/rate-limit.js'
import type { Exchange } from '../exchange.js'
import { LIMITS } from './limits.js'

const { unreadBytes, unreadBytesHard, unreadMs } = LIMITS

/** An answer that is being sent. */
interface PendingAnswer {
  /** All of them stay in memory until the system has taken the last one. */
  readonly bytes: number
  /** Bytes that the system had not taken at the last look. */
  left: number
  /** Time of the last progress. */
  movedMs: number
  readonly exchange: Pick<Exchange, 'incoming' | 'address' | 'path'>
}

/** Budgets the answers that wait in memory for clients that do not read (rules 2.16). */
export class SendBufferBudget {
  #bytes = 0
  /** Oldest first. */
  readonly #answers = new Map<object, PendingAnswer>()
  readonly #warning: ThrottledWarning
  #again: NodeJS.Timeout | undefined

  constructor(log: Log) {
    this.#warning = new ThrottledWarning(log)
  }

  /** Counts an answer of `bytes`. Over budget, answers that clients do not read are cut, never this one. */
  add(exchange: PendingAnswer['exchange'], bytes: number): void {
    this.remove(exchange)
    this.#answers.set(exchange, { bytes, left: bytes, movedMs: performance.now(), exchange })
    this.#bytes += bytes
    this.#review(exchange)
  }

  /** Stops counting an answer: the client has taken it, or has left. */
  remove(exchange: object): void {
    this.#bytes -= this.#answers.get(exchange)?.bytes ?? 0
    this.#answers.delete(exchange)
  }

  #review(newest?: object): void {
    if (this.#bytes <= unreadBytes) return
    const now = performance.now()
    for (const answer of this.#answers.values()) {
      const left = queued(answer.exchange.incoming.socket)
      if (left < answer.left) answer.movedMs = now
      answer.left = left
    }
    for (const [key, { movedMs, exchange }] of this.#answers) {
      if (this.#bytes <= unreadBytes) return
      if (key === newest) continue
      if (now - movedMs < unreadMs && this.#bytes <= unreadBytesHard) continue
      this.remove(key)
      this.#warning.say(`${exchange.address} does not read the answer to ${exchange.path}: it is cut`)
      exchange.incoming.socket.destroy()
    }
    if (this.#bytes <= unreadBytes) return
    this.#again ??= setTimeout(() => {
      this.#again = undefined
      this.#review()
    }, unreadMs).unref()
  }
}

/** Bytes that the system has not taken yet. During one large write only the handle's queue has them. */
function queued(socket: Socket): number {
  const { _handle: handle } = socket as { _handle?: { writeQueueSize?: number } | null }
  return handle?.writeQueueSize ?? socket.writableLength
}
