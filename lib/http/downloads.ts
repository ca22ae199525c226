import { Semaphore } from '../concurrency.js'
import { networkOf } from '../source.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import type { Limits } from './limits.js'
import { Pieces } from './pieces.js'
import { type Place, Places } from './places.js'

/**
 * What the pieces that are kept for the next client should take, in bytes, and what those on their way to all clients should:
 * the more downloads, the smaller their pieces.
 */
const BUFFER_BYTES = 16 * 1024 * 1024
const LARGEST_PIECE = 256 * 1024
const SMALLEST_PIECE = 16 * 1024
/** A quarter of the places may be one address's; so many may be in any case. */
const LEAST_OF_ADDRESS = 16
/** As many small files are sent in a second by a slow controller in a storm. */
const LEAST_PER_SECOND = 300
/**
 * So many pieces are between disk and socket at once: what one turn of the event loop has to do for downloads, and how many
 * threads of the pool, which has four, they take from others.
 */
const PIECES_AT_ONCE = 3

/**
 * All files that are being sent. They are bounded in number, their pieces in bytes, and pieces are taken from each client
 * address in turn (rules 2.13): whatever is downloaded, a boot script waits for a few pieces at most.
 */
export class Downloads {
  readonly #places: Places
  readonly #turns = new Semaphore(PIECES_AT_ONCE)
  readonly #pieces = new Pieces(BUFFER_BYTES)

  /** `isUnbound`: whether an address may have all places. */
  constructor(
    { downloads, downloadWaitMs, yieldMs }: Pick<Limits, 'downloads' | 'downloadWaitMs' | 'yieldMs'>,
    isUnbound: (address: string) => boolean
  ) {
    this.#places = new Places({
      most: downloads,
      ofAddress: {
        most: Math.max(LEAST_OF_ADDRESS, Math.ceil(downloads / 4)),
        isUnbound,
        what: 'downloads under way or waiting, which is the most for one address (a quarter of [http] max_downloads)'
      },
      yieldMs,
      waitMs: downloadWaitMs,
      leastPerSecond: LEAST_PER_SECOND,
      what: 'files are being downloaded, which is the most ([http] max_downloads)'
    })
  }

  /** Runs `send` with a place for one download; throws 503 with Retry-After if there is none in time. */
  run<C>(
    exchange: Exchange<C>,
    send: (stream: (file: FileAnswer) => Promise<void>) => Promise<void>
  ): Promise<void> {
    return this.#places
      .run(exchange, place => send(file => this.#stream(exchange, file, place)))
      .finally(() => {
        if (this.#places.size === 0) this.#pieces.clear()
      })
  }

  /** Sends the bytes of a file whose head is written. Rejects with FileShrunk or an error of the disk. */
  async #stream<C>(exchange: Exchange<C>, file: FileAnswer, place: Place): Promise<void> {
    const { outgoing } = exchange
    const party = networkOf(exchange.address)
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
          piece.letGo()
          return 0
        }
        flushed = new Promise(resolve => {
          sent = resolve
          const written = (error?: Error | null) => {
            if (!error) piece.letGo()
            resolve()
          }
          outgoing.write(piece.bytes, written)
        })
        return piece.bytes.length
      })
      left -= bytes
      exchange.bytes += bytes
      place.waitingSince = performance.now()
      await flushed
      place.waitingSince = undefined
    }
    if (!exchange.gone) place.isServed = true
  }

  /** A power of two, so that the pieces of different clients are often the same. */
  get #pieceBytes(): number {
    const share = 2 ** Math.floor(Math.log2(BUFFER_BYTES / this.#places.size))
    return Math.max(SMALLEST_PIECE, Math.min(share, LARGEST_PIECE))
  }
}
