import { setImmediate as nextTurn } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { Semaphore } from '../base/concurrency.js'
import { clientNetworkOf } from '../base/request-source.js'
import type { ConcurrencyLimit, Slot } from './admission/concurrency-limit.js'
import { LIMITS } from './admission/limits.js'
import { type DownloadParty, PieceTurns } from './admission/piece-turns.js'
import type { Exchange } from './exchange.js'
import { type FileAnswer, FileShrunk, type OpenFile } from './files.js'

/** Sends the bytes of a file. */
type Stream = (file: FileAnswer) => Promise<void>

/** All files being sent. Whatever is downloaded, pieces take a short part of each turn (rules 2.13). */
export class Downloads {
  readonly #turns = new PieceTurns()
  readonly #pieces = new PieceCache(LIMITS.pieceCacheBytes)

  constructor(private readonly limit: ConcurrencyLimit) {}

  /** Runs `send` in a slot for one download. Throws 503 with Retry-After if none is free in time. */
  run(exchange: Exchange, send: (stream: Stream) => Promise<void>): Promise<void> {
    return this.limit
      .run(exchange, slot => send(file => this.#stream(exchange, file, slot)))
      .finally(() => {
        if (this.limit.size === 0) this.#pieces.clear()
      })
  }

  /** Sends the bytes of a file after its head. Rejects with FileShrunk or an error of the disk. */
  async #stream(exchange: Exchange, file: FileAnswer, slot: Slot): Promise<void> {
    const name = clientNetworkOf(exchange.address)
    const party = this.#turns.join(name)
    try {
      for (let sent = 0; sent < file.length && !exchange.gone; )
        sent += await this.#sendPiece(exchange, file, sent, slot, party)
    } finally {
      this.#turns.leave(name, party, exchange.gone)
    }
    if (!exchange.gone) slot.isServed = true
  }

  /** Sends the piece behind the `sent` bytes. Resolves with its length as `write` does. */
  async #sendPiece(
    exchange: Exchange,
    { file, start, length: whole }: FileAnswer,
    sent: number,
    slot: Slot,
    party: DownloadParty
  ): Promise<number> {
    const turn = await this.#turns.take(party)
    try {
      const left = whole - sent
      const piece = await this.#pieces.read(file, start + sent, this.#turns.pieceBytes(party, sent), left)
      const { length } = piece.bytes
      if (length === 0) throw new FileShrunk(`${file.path} got shorter by ${left} bytes while it was sent`)
      slot.stalledSinceMs = performance.now()
      turn.written(length)
      await write(exchange, piece)
      slot.stalledSinceMs = undefined
      return length
    } finally {
      turn.end()
    }
  }
}

/** Writes a piece. Resolves when the system has taken it, or the client has left. */
async function write(exchange: Exchange, piece: FilePiece): Promise<void> {
  const { gone, outgoing } = exchange
  if (gone) return piece.release()
  exchange.bytes += piece.bytes.length
  await new Promise<void>(resolve => {
    outgoing.once('close', resolve)
    outgoing.write(piece.bytes, error => {
      outgoing.off('close', resolve)
      if (!error) piece.release()
      resolve()
    })
  })
}

/** Bytes read from a file, shared by the clients they are written to. */
class Piece {
  readonly read: Promise<Buffer>
  #users = 1

  /** `read` fills the buffer and resolves with the number of bytes; `free` is called after the last use. */
  constructor(
    /** May be longer than the bytes at the end of a file. */
    private readonly buffer: Buffer,
    read: Promise<number>,
    private readonly free: (buffer: Buffer) => void
  ) {
    this.read = read.then(bytes => buffer.subarray(0, bytes))
  }

  use(): this {
    this.#users++
    return this
  }

  release(): void {
    if (--this.#users === 0) this.free(this.buffer)
  }
}

/** A piece for one client, who must not write into it. */
interface FilePiece {
  readonly bytes: Buffer
  /** Allows the memory to be reused; never call it while the system may still send it. */
  release(): void
}

/**
 * A cache of file pieces, each read once for all clients: machines that boot together ask for the same ones.
 * Only whole pieces are kept, so that there are few of them whatever is asked for.
 */
export class PieceCache {
  readonly #cached: LRUCache<string, Piece>
  /** Unused buffers of one size. */
  #spare: Buffer[] = []
  readonly #reads = new Semaphore(LIMITS.diskReads)

  /** `mostBytes`: for cached pieces and spare buffers together. */
  constructor(private readonly mostBytes: number) {
    this.#cached = new LRUCache({ maxSize: mostBytes, disposeAfter: piece => piece.release() })
  }

  /**
   * Returns up to `most` bytes of a file from `position` to the end of their piece of `size` bytes; none at
   * the end of the file. Resolves in a later turn of the event loop. Rejects with an error of the disk.
   */
  async read(file: OpenFile, position: number, size: number, most: number): Promise<FilePiece> {
    const length = Math.min(most, size - (position % size))
    const isWhole = position % size === 0 && (length === size || position + length === file.size)
    const key = `${file.id} ${position} ${size}`
    const kept = isWhole ? this.#cached.get(key)?.use() : undefined
    const piece = kept ?? this.#readPiece(file, position, isWhole ? size : length, size)
    if (isWhole && !kept) this.#keep(key, piece, size)
    try {
      const read = await piece.read
      // Sequential readers get one piece per turn, whether it comes from the disk or the cache.
      await nextTurn()
      // A file that has grown has more than was promised.
      return { bytes: read.subarray(0, length), release: () => piece.release() }
    } catch (error) {
      piece.release()
      throw error
    }
  }

  /** Empties the cache. */
  clear(): void {
    this.#cached.clear()
    this.#spare = []
  }

  #keep(key: string, piece: Piece, size: number): void {
    this.#cached.set(key, piece.use(), { size })
    piece.read.catch(() => {
      if (this.#cached.peek(key) === piece) this.#cached.delete(key)
    })
  }

  #readPiece(file: OpenFile, position: number, length: number, size: number): Piece {
    const found = this.#spare.at(-1)?.length === size ? this.#spare.pop() : undefined
    const buffer = found ?? Buffer.allocUnsafeSlow(size)
    const read = this.#reads.run('', () => file.read(buffer, position, length))
    return new Piece(buffer, read, freed => {
      if (this.#spare[0]?.length !== freed.length) this.#spare = []
      if ((this.#spare.length + 1) * freed.length + this.#cached.calculatedSize <= this.mostBytes)
        this.#spare.push(freed)
    })
  }
}
