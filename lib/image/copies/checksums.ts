import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { LRUCache } from 'lru-cache'
import { notFound, tryLater } from '../../base/errors.js'
import { type Hashed, hashFile } from '../../helper/packer/in-worker.js'

/** Entries of the cache; an image has three files. */
const MOST_KNOWN = 1000
/** A file that an admin copies into its place grows; after this time without a change it is whole. */
const STILL_MS = 10_000
const RETRY_S = 5

interface Known {
  /** The stamp of the file. */
  readonly version: string
  readonly hashed: Promise<Hashed>
}

/** Cache of checksums for other controllers. A worker thread makes them. */
export class Checksums {
  readonly #known = new LRUCache<string, Known>({ max: MOST_KNOWN })
  readonly #closing = new AbortController()

  /** `now`: milliseconds since 1970. */
  constructor(private readonly now: () => number) {}

  /**
   * Returns size and SHA-256 of a file. Throws 404 where there is none, and 503 for one that may still be
   * written. `isWhole`: the file got its name when it was whole.
   */
  async of(file: string, isWhole: boolean): Promise<Hashed> {
    const version = await this.#versionOf(file, isWhole)
    const before = this.#known.get(file)
    const known = before?.version === version ? before : this.#begin(file, version)
    try {
      const hashed = await known.hashed
      if ((await this.#versionOf(file, isWhole)) === version) return hashed
    } catch (error) {
      if (this.#known.get(file) === known) this.#known.delete(file)
      throw error
    }
    throw changing(file)
  }

  close(): void {
    this.#closing.abort()
  }

  #begin(file: string, version: string): Known {
    const known = { version, hashed: hashFile(file, this.#closing.signal) }
    // The caller awaits it too.
    known.hashed.catch(() => undefined)
    this.#known.set(file, known)
    return known
  }

  async #versionOf(file: string, isWhole: boolean): Promise<string> {
    const found = await stat(file, { bigint: true }).catch(() => undefined)
    if (!found?.isFile()) throw notFound(`there is no file ${basename(file)}`, 'no-file')
    const { ino, size, mtimeNs, mtimeMs } = found
    if (!isWhole && Math.abs(this.now() - Number(mtimeMs)) < STILL_MS) throw changing(file)
    return `${ino} ${size} ${mtimeNs}`
  }
}

const changing = (file: string) =>
  tryLater(`the file ${basename(file)} may still be written: it changed a moment ago`, RETRY_S)
