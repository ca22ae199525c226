import type { Socket } from 'node:net'
import type { Log } from '../log.js'
import { Notice } from './connections.js'
import type { Exchange } from './exchange.js'

/** What clients may leave unread of all answers together, in bytes; downloads are not counted here. */
const MOST_BYTES = 32 * 1024 * 1024
/** Beyond this, answers are cut although their clients read. */
const MOST_IN_ANY_CASE = 4 * MOST_BYTES
/** A client that has taken nothing for so long does not read. */
const STALLED_MS = 2000

/** An answer on its way. */
interface Answer {
  /** They are in memory until the system has taken the last one. */
  readonly bytes: number
  /** What the system has not taken yet, when it was looked at last. */
  left: number
  /** When that became less. */
  movedMs: number
  readonly exchange: Pick<Exchange<unknown>, 'incoming' | 'address' | 'path'>
}

/** The answers that wait in memory for clients which do not read them (rules 2.16). */
export class Unread {
  #bytes = 0
  /** The one that came first stands first. */
  readonly #answers = new Map<object, Answer>()
  readonly #notice: Notice
  #again: NodeJS.Timeout | undefined

  constructor(log: Log) {
    this.#notice = new Notice(log)
  }

  /** Counts `bytes` of an answer. Where there are too many in all, answers that clients do not read are cut, not this one. */
  add(exchange: Answer['exchange'], bytes: number): void {
    this.remove(exchange)
    this.#answers.set(exchange, { bytes, left: bytes, movedMs: performance.now(), exchange })
    this.#bytes += bytes
    this.#review(exchange)
  }

  /** The client has taken it, or has gone. */
  remove(exchange: object): void {
    this.#bytes -= this.#answers.get(exchange)?.bytes ?? 0
    this.#answers.delete(exchange)
  }

  #review(newest?: object): void {
    if (this.#bytes <= MOST_BYTES) return
    const now = performance.now()
    for (const answer of this.#answers.values()) {
      const left = queued(answer.exchange.incoming.socket)
      if (left < answer.left) answer.movedMs = now
      answer.left = left
    }
    for (const [key, { movedMs, exchange }] of this.#answers) {
      if (this.#bytes <= MOST_BYTES) return
      if (key === newest) continue
      if (now - movedMs < STALLED_MS && this.#bytes <= MOST_IN_ANY_CASE) continue
      this.remove(key)
      this.#notice.say(`${exchange.address} does not read the answer to ${exchange.path}: it is cut`)
      exchange.incoming.socket.destroy()
    }
    if (this.#bytes <= MOST_BYTES) return
    this.#again ??= setTimeout(() => {
      this.#again = undefined
      this.#review()
    }, STALLED_MS).unref()
  }
}

/** Bytes that the system has not taken yet. Of one large write, node tells that only by the queue of its handle. */
function queued(socket: Socket): number {
  const { _handle: handle } = socket as { _handle?: { writeQueueSize?: number } | null }
  return handle?.writeQueueSize ?? socket.writableLength
}
