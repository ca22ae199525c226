import { Semaphore } from '../base/concurrency.js'
import { clientNetworkOf } from '../base/request-source.js'
import type { ConcurrencyLimit, Slot } from './admission/concurrency-limit.js'
import { LIMITS } from './admission/limits.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import { PieceCache } from './piece-cache.js'

const { piecesAtOnce, pieceCacheBytes, largestPiece, smallestPiece } = LIMITS

/**
 * All files being sent. Pieces are taken from client addresses in turn (rules 2.13): whatever is downloaded,
 * a boot script waits for a few pieces at most.
 */
export class Downloads {
  readonly #turns = new Semaphore(piecesAtOnce)
  readonly #pieces = new PieceCache(pieceCacheBytes)

  constructor(private readonly limit: ConcurrencyLimit) {}

  /** Runs `send` in a slot for one download. Throws 503 with Retry-After if none is free in time. */
  run<C>(
    exchange: Exchange<C>,
    send: (stream: (file: FileAnswer) => Promise<void>) => Promise<void>
  ): Promise<void> {
    return this.limit
      .run(exchange, slot => send(file => this.#stream(exchange, file, slot)))
      .finally(() => {
        if (this.limit.size === 0) this.#pieces.clear()
      })
  }

  /** Sends the bytes of a file after its head. Rejects with FileShrunk or an error of the disk. */
  async #stream<C>(exchange: Exchange<C>, file: FileAnswer, slot: Slot): Promise<void> {
    const { outgoing } = exchange
    const party = clientNetworkOf(exchange.address)
    let sent: () => void = () => undefined
    outgoing.once('close', () => sent())
    let left = file.length
    while (left > 0 && !exchange.gone) {
      const position = file.start + file.length - left
      let flushed = Promise.resolve()
      const bytes = await this.#turns.run(party, async () => {
        const piece = await this.#pieces.read(file.file, position, this.#pieceBytes, left)
        if (piece.bytes.length === 0)
          throw new FileShrunk(`${file.file.path} got shorter by ${left} bytes while it was sent`)
        if (exchange.gone) {
          piece.release()
          return 0
        }
        flushed = new Promise(resolve => {
          sent = resolve
          const written = (error?: Error | null) => {
            if (!error) piece.release()
            resolve()
          }
          outgoing.write(piece.bytes, written)
        })
        return piece.bytes.length
      })
      left -= bytes
      exchange.bytes += bytes
      slot.stalledSinceMs = performance.now()
      await flushed
      slot.stalledSinceMs = undefined
    }
    if (!exchange.gone) slot.isServed = true
  }

  /** A power of two, so that clients often share pieces. */
  get #pieceBytes(): number {
    const share = 2 ** Math.floor(Math.log2(pieceCacheBytes / this.limit.size))
    return Math.max(smallestPiece, Math.min(share, largestPiece))
  }
}
