import { Semaphore } from '../concurrency.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import type { Limits } from './limits.js'
import { Pieces } from './pieces.js'
import { type Place, Places } from './places.js'
import { TurnLength } from './turn-length.js'

/**
 * What the pieces that are kept for the next client should take, in bytes, and what those on their way to all clients should:
 * the more downloads, the smaller their pieces.
 */
const BUFFER_BYTES = 16 * 1024 * 1024
const LARGEST_PIECE = 256 * 1024
const SMALLEST_PIECE = 16 * 1024
/** A quarter of the places may be one address's; so many may be in any case. */
const LEAST_OF_ADDRESS = 16
/** So many bytes are between disk and socket at once: what one turn of the event loop has to do for downloads. */
const BYTES_AT_ONCE = 3 * LARGEST_PIECE
/** In longer turns there is more to do for downloads too, by as much: else they would wait for all others. */
const SHORT_TURN_MS = 10

/**
 * All files that are being sent. They are bounded in number, their pieces in bytes, and pieces are taken from each client
 * address in turn (rules 2.13): whatever is downloaded, a boot script waits for a few pieces at most.
 */
export class Downloads {
  readonly #places: Places
  readonly #turn = new TurnLength()
  readonly #turns = new Semaphore(
    () => (BYTES_AT_ONCE * Math.max(1, this.#turn.ms / SHORT_TURN_MS)) / this.#pieceBytes
  )
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
    const { outgoing, address } = exchange
    let sent: () => void = () => undefined
    outgoing.once('close', () => sent())
    let left = file.length
    while (left > 0 && !exchange.gone) {
      const due = left
      let flushed = Promise.resolve()
      const bytes = await this.#turns.run(address, async () => {
        const piece = await this.#nextPiece(file, due)
        if (piece.length === 0)
          throw new FileShrunk(`${file.file.path} got shorter by ${due} bytes while it was sent`)
        if (exchange.gone) return 0
        flushed = new Promise(resolve => {
          sent = resolve
          outgoing.write(piece, () => resolve())
        })
        return piece.length
      })
      left -= bytes
      exchange.bytes += bytes
      place.waitingSince = performance.now()
      await flushed
      place.waitingSince = undefined
    }
  }

  /** What comes next of an answer of which `due` bytes are missing. Pieces begin at the same places for all clients. */
  #nextPiece({ file, start, length }: FileAnswer, due: number): Promise<Buffer> {
    const position = start + length - due
    const size = this.#pieceBytes
    return this.#pieces.read(file, position, Math.min(due, size - (position % size)))
  }

  /** A power of two, so that the pieces of different clients are often the same. */
  get #pieceBytes(): number {
    const share = 2 ** Math.floor(Math.log2(BUFFER_BYTES / this.#places.size))
    return Math.max(SMALLEST_PIECE, Math.min(share, LARGEST_PIECE))
  }
}
