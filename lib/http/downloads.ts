import { Semaphore } from '../base/concurrency.js'
import { clientNetworkOf } from '../base/request-source.js'
import { ConcurrencyLimit, type Slot } from './concurrency-limit.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import type { Limits } from './limits.js'
import { PieceCache } from './piece-cache.js'

/** Bytes of cached pieces, and of those on their way: the more downloads, the smaller their pieces. */
const BUFFER_BYTES = 16 * 1024 * 1024
const LARGEST_PIECE = 256 * 1024
const SMALLEST_PIECE = 16 * 1024
/** Minimum for the limit per address, which is a quarter of the slots. */
const LEAST_OF_ADDRESS = 16
/** A slow controller sends this many small files a second in a storm. */
const LEAST_PER_SECOND = 300
/** Pieces between disk and socket at once: limits their share of a turn, and of the pool's four threads. */
const PIECES_AT_ONCE = 3

/**
 * All files being sent. Pieces are taken from client addresses in turn (rules 2.13): whatever is downloaded,
 * a boot script waits for a few pieces at most.
 */
export class Downloads {
  readonly #places: ConcurrencyLimit
  readonly #turns = new Semaphore(PIECES_AT_ONCE)
  readonly #pieces = new PieceCache(BUFFER_BYTES)

  /** `isUnbound`: whether an address may use all slots. */
  constructor(
    { downloads, downloadWaitMs, yieldMs }: Pick<Limits, 'downloads' | 'downloadWaitMs' | 'yieldMs'>,
    isUnbound: (address: string) => boolean
  ) {
    this.#places = new ConcurrencyLimit({
      most: downloads,
      ofAddress: {
        most: Math.max(LEAST_OF_ADDRESS, Math.ceil(downloads / 4)),
        isUnbound,
        what:
          'downloads under way or waiting, ' +
          'which is the most for one address (a quarter of [http] max_downloads)'
      },
      yieldMs,
      waitMs: downloadWaitMs,
      leastPerSecond: LEAST_PER_SECOND,
      what: 'files are being downloaded, which is the most ([http] max_downloads)'
    })
  }

  /** Runs `send` in a slot for one download. Throws 503 with Retry-After if none is free in time. */
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

  /** Sends the bytes of a file after its head. Rejects with FileShrunk or an error of the disk. */
  async #stream<C>(exchange: Exchange<C>, file: FileAnswer, place: Slot): Promise<void> {
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

  /** A power of two, so that clients often share pieces. */
  get #pieceBytes(): number {
    const share = 2 ** Math.floor(Math.log2(BUFFER_BYTES / this.#places.size))
    return Math.max(SMALLEST_PIECE, Math.min(share, LARGEST_PIECE))
  }
}
