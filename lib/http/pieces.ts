import { setImmediate as nextTurn } from 'node:timers/promises'
import type { OpenFile } from './open-files.js'

/**
 * The pieces of files that were read last, each read once for all clients: machines that boot together ask for the same
 * ones at nearly the same time. Who has a piece must not write into it.
 */
export class Pieces {
  readonly #mostBytes: number
  readonly #pieces = new Map<string, { readonly bytes: number; readonly read: Promise<Buffer> }>()
  #bytes = 0

  /** `mostBytes`: what is kept. */
  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes
  }

  /** Resolves in a later turn of the event loop, with fewer bytes at the end of the file. Rejects with an error of the disk. */
  async read(file: OpenFile, position: number, length: number): Promise<Buffer> {
    const key = `${file.id} ${position} ${length}`
    const kept = this.#pieces.get(key)
    if (kept) {
      // What was used last is last.
      this.#pieces.delete(key)
      this.#pieces.set(key, kept)
      await nextTurn()
      return kept.read
    }
    const read = file.read(position, length)
    this.#pieces.set(key, { bytes: length, read })
    this.#bytes += length
    for (const oldest of this.#pieces.keys()) {
      if (this.#bytes <= this.#mostBytes) break
      this.#drop(oldest)
    }
    read.catch(() => this.#drop(key))
    return read
  }

  clear(): void {
    this.#pieces.clear()
    this.#bytes = 0
  }

  #drop(key: string): void {
    this.#bytes -= this.#pieces.get(key)?.bytes ?? 0
    this.#pieces.delete(key)
  }
}
