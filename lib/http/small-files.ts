import { stat } from 'node:fs/promises'
import { singleFlight } from '../concurrency.js'
import type { OpenFile, OpenFiles } from './open-files.js'

/** A larger file is a download: it is sent in pieces. */
const LARGEST = 64 * 1024
/** What is kept of all small files, in bytes. */
const MOST_BYTES = 4 * 1024 * 1024
/** A clock of files has ticks: what is changed twice within one has the time of the first change still. */
const TICK_MS = 1000

/** A file that is wholly in memory. Nobody may write into its bytes. */
export interface SmallFile {
  /** What was found of it before it was read. It is closed. */
  readonly file: OpenFile
  readonly bytes: Buffer
}

/** A look at what is at a path, and how many wait for one. */
interface Look {
  readonly now: () => Promise<SmallFile | undefined>
  users: number
}

/**
 * The small files that were sent last, wholly in memory, so that one is answered as a text is (rules 2.13). Machines
 * that boot together ask for the same ones at nearly the same time: all who wait share one look at the disk.
 */
export class SmallFiles {
  readonly #files: OpenFiles
  readonly #now: () => number
  readonly #kept = new Map<string, SmallFile>()
  #bytes = 0
  readonly #looks = new Map<string, Look>()

  /** `files`: by which they are opened. `now`: milliseconds since 1970. */
  constructor(files: OpenFiles, now: () => number = Date.now) {
    this.#files = files
    this.#now = now
  }

  /**
   * The file that is at `path` after the call; undefined if it is larger than a small one, is no regular file, or cannot be
   * read now. It never rejects: whoever opens the file then is told why.
   */
  async get(path: string): Promise<SmallFile | undefined> {
    let look = this.#looks.get(path)
    if (!look) {
      look = { now: singleFlight(() => this.#look(path)), users: 0 }
      this.#looks.set(path, look)
    }
    look.users++
    try {
      return await look.now()
    } catch {
      return undefined
    } finally {
      if (--look.users === 0) this.#looks.delete(path)
    }
  }

  async #look(path: string): Promise<SmallFile | undefined> {
    const found = await stat(path, { bigint: true })
    const kept = this.#kept.get(path)
    if (kept) this.#drop(path, kept)
    if (kept?.file.is(found)) return this.#keep(path, kept)
    if (!found.isFile() || found.size > LARGEST) return undefined
    return this.#files.with(path, async file => {
      // It may be another one by now.
      if (file.size > LARGEST) return undefined
      const bytes = Buffer.allocUnsafeSlow(file.size)
      // A file that got shorter meanwhile is left to who sends it in pieces.
      if ((await file.read(bytes, 0, file.size)) < file.size) return undefined
      const small = { file, bytes }
      return this.#now() - file.changedMs < TICK_MS ? small : this.#keep(path, small)
    })
  }

  /** What was used last is last. */
  #keep(path: string, small: SmallFile): SmallFile {
    this.#kept.set(path, small)
    this.#bytes += small.bytes.length
    for (const [oldest, other] of this.#kept) {
      if (this.#bytes <= MOST_BYTES) break
      this.#drop(oldest, other)
    }
    return small
  }

  #drop(path: string, small: SmallFile): void {
    this.#kept.delete(path)
    this.#bytes -= small.bytes.length
  }
}
