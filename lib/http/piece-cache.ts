import { setImmediate as nextTurn } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { Semaphore } from '../base/concurrency.js'
import { LIMITS } from './admission/limits.js'
import type { OpenFile } from './open-files.js'

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
export interface FilePiece {
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
