import { stat, statfs } from 'node:fs/promises'
import { unlessMissing } from '../../disk/missing.js'
import { leastFree } from '../../monitor/disk-space.js'

/** The disk has no room for a file; the message names the directory and the way out. */
export class NoRoomError extends Error {
  /** `isFull`: it filled up while the file came. What has come of it is in the way of others then. */
  constructor(
    message: string,
    readonly isFull: boolean
  ) {
    super(message)
  }
}

/** The room of a directory for files that are fetched at the same time. */
export class Room {
  /** Parts that are fetched now → bytes that each will have. */
  readonly #fetching = new Map<string, number>()

  /** `kept`: `[monitor] disk_free`. */
  constructor(
    private readonly directory: string,
    private readonly kept: number
  ) {}

  /** Runs what brings a part to so many bytes. Throws NoRoomError where there is no room for them, before it begins or meanwhile. */
  async during<T>(part: string, bytes: number, fetching: () => Promise<T>): Promise<T> {
    try {
      await this.#take(part, bytes)
      return await fetching()
    } catch (error) {
      const { code = '' } = error as NodeJS.ErrnoException
      throw ['ENOSPC', 'EDQUOT'].includes(code) ? this.#none(bytes, true) : error
    } finally {
      this.#fetching.delete(part)
    }
  }

  async #take(part: string, bytes: number): Promise<void> {
    const { bsize, blocks, bavail } = await statfs(this.directory)
    const sizes = new Map<string, number>()
    for (const path of [part, ...this.#fetching.keys()]) sizes.set(path, await sizeOnDisk(path))
    // From here on nobody else is asked: of two that begin together, one is noted first.
    let needed = bytes - (sizes.get(part) ?? 0)
    for (const [other, whole] of this.#fetching) needed += whole - (sizes.get(other) ?? 0)
    const kept = leastFree(blocks * bsize, this.kept)
    if (needed > bavail * bsize - kept) throw this.#none(bytes, false)
    this.#fetching.set(part, bytes)
  }

  #none(bytes: number, isFull: boolean): NoRoomError {
    return new NoRoomError(
      `the disk of ${this.directory} has no room for its ${bytes} bytes beside what [monitor] disk_free keeps and other files that are fetched need: make room; svcd tries again`,
      isFull
    )
  }
}

/** How many bytes of a file are there: one that comes by torrent has holes. 0 where there is none. */
export async function sizeOnDisk(path: string): Promise<number> {
  const found = await unlessMissing(stat(path), undefined)
  return found ? Math.min(found.size, found.blocks * 512) : 0
}
