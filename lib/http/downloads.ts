import { clientNetworkOf } from '../base/request-source.js'
import type { ConcurrencyLimit, Slot } from './admission/concurrency-limit.js'
import { LIMITS } from './admission/limits.js'
import { type DownloadParty, PieceTurns } from './admission/piece-turns.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk } from './files.js'
import { type FilePiece, PieceCache } from './piece-cache.js'

/** All files being sent. Whatever is downloaded, pieces take a short part of each turn (rules 2.13). */
export class Downloads {
  readonly #turns = new PieceTurns()
  readonly #pieces = new PieceCache(LIMITS.pieceCacheBytes)

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
    const name = clientNetworkOf(exchange.address)
    const party = this.#turns.join(name)
    const socket = new PieceSocket(exchange)
    try {
      for (let left = file.length; left > 0 && !exchange.gone; )
        left -= await this.#sendPiece(socket, file, left, slot, party)
    } finally {
      this.#turns.leave(name, party, exchange.gone)
    }
    if (!exchange.gone) slot.isServed = true
  }

  /**
   * Sends one piece of the last `left` bytes. Resolves with its length once the system has taken it, or the
   * client has left.
   */
  async #sendPiece<C>(
    socket: PieceSocket<C>,
    file: FileAnswer,
    left: number,
    slot: Slot,
    party: DownloadParty
  ): Promise<number> {
    const turn = await this.#turns.take(party)
    try {
      const sent = file.length - left
      const bytes = this.#turns.pieceBytes(party, sent)
      const piece = await this.#pieces.read(file.file, file.start + sent, bytes, left)
      const { length } = piece.bytes
      if (length === 0)
        throw new FileShrunk(`${file.file.path} got shorter by ${left} bytes while it was sent`)
      slot.stalledSinceMs = performance.now()
      turn.written(length)
      await socket.write(piece)
      slot.stalledSinceMs = undefined
      return length
    } finally {
      turn.end()
    }
  }
}

/** Writes pieces to a client. */
class PieceSocket<C> {
  #settle: () => void = () => undefined

  constructor(private readonly exchange: Exchange<C>) {
    exchange.outgoing.once('close', () => this.#settle())
  }

  /** Resolves when the system has taken the piece, or the client has left. */
  write(piece: FilePiece): Promise<void> {
    const { exchange } = this
    if (exchange.gone) {
      piece.release()
      return Promise.resolve()
    }
    exchange.bytes += piece.bytes.length
    return new Promise(resolve => {
      this.#settle = resolve
      exchange.outgoing.write(piece.bytes, error => {
        if (!error) piece.release()
        resolve()
      })
    })
  }
}
