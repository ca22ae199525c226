import { Semaphore } from '../concurrency.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import type { Limits } from './limits.js'
import { type Place, Places } from './places.js'

/** What the pieces of all downloads together should take, in bytes: the more downloads, the smaller their pieces. */
const BUFFER_BYTES = 16 * 1024 * 1024
const LARGEST_PIECE = 256 * 1024
const SMALLEST_PIECE = 16 * 1024
/** A quarter of the places may be one address's; so many may be in any case. */
const LEAST_OF_ADDRESS = 16
/** So many pieces are between disk and socket at once: what one turn of the event loop has to do for downloads. */
const PIECES_AT_ONCE = 3

/**
 * All files that are being sent. They are bounded in number, their pieces in bytes, and pieces are taken from each client
 * address in turn (rules 2.13): whatever is downloaded, a boot script waits for a few pieces at most.
 */
export class Downloads {
  readonly #places: Places
  readonly #pieces = new Semaphore(PIECES_AT_ONCE)

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
      what: 'files are being downloaded, which is the most ([http] max_downloads)'
    })
  }

  /** Runs `send` with a place for one download; throws 503 with Retry-After if there is none in time. */
  run<C>(
    exchange: Exchange<C>,
    send: (stream: (file: FileAnswer) => Promise<void>) => Promise<void>
  ): Promise<void> {
    return this.#places.run(exchange, place => send(file => this.#stream(exchange, file, place)))
  }

  /** Sends the bytes of a file whose head is written. Rejects with FileShrunk or an error of the disk. */
  async #stream<C>(exchange: Exchange<C>, file: FileAnswer, place: Place): Promise<void> {
    const { outgoing, address } = exchange
    let sent: () => void = () => undefined
    outgoing.once('close', () => sent())
    let buffer = Buffer.alloc(0)
    let left = file.length
    while (left > 0 && !exchange.gone) {
      const size = Math.min(left, this.#pieceBytes)
      if (buffer.length < size || buffer.length > this.#pieceBytes) buffer = Buffer.allocUnsafeSlow(size)
      const due = left
      let flushed = Promise.resolve()
      const bytes = await this.#pieces.run(address, async () => {
        const { bytesRead } = await file.handle.read(buffer, 0, size, file.start + file.length - due)
        if (bytesRead === 0)
          throw new FileShrunk(`${file.path} got shorter by ${due} bytes while it was sent`)
        if (exchange.gone) return 0
        flushed = new Promise(resolve => {
          sent = resolve
          outgoing.write(buffer.subarray(0, bytesRead), () => resolve())
        })
        return bytesRead
      })
      left -= bytes
      exchange.bytes += bytes
      place.waitingSince = performance.now()
      await flushed
      place.waitingSince = undefined
    }
  }

  /** A power of two, so that a buffer is seldom made anew. */
  get #pieceBytes(): number {
    const share = 2 ** Math.floor(Math.log2(BUFFER_BYTES / this.#places.size))
    return Math.max(SMALLEST_PIECE, Math.min(share, LARGEST_PIECE))
  }
}
