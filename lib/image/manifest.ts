import { lstat, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegularFile, replaceDurably, unlessMissing } from '../disk/file.js'

/** The file stamp at the time svcd wrote it. A file with another stamp is somebody else's. */
interface Stamp {
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly mtime: number
}

interface ManifestOptions {
  /** The list on disk. */
  readonly file: string
  readonly directory: string
  readonly ticks: () => number
  /** Called for a damaged list: its files stay. */
  readonly damaged: (message: string) => void
}

/** A new file gets its object within seconds, or never. */
const KEPT_MS = 600_000

/** The files that svcd made or fetched, where controllers share the objects: it removes no others. */
export class Manifest {
  /** Files that are kept for an object that may come, with the end of that time. */
  readonly #kept = new Map<string, number>()

  private constructor(
    private readonly o: ManifestOptions,
    private stamps: ReadonlyMap<string, Stamp>
  ) {}

  static async open(options: ManifestOptions): Promise<Manifest> {
    const { file, damaged } = options
    let stamps: [string, Stamp][] = []
    try {
      const text = await unlessMissing(readRegularFile(file).then(String), '{}')
      stamps = Object.entries(JSON.parse(text) as Record<string, Stamp>).filter(
        ([, { bytes, mtime }]) => typeof bytes === 'number' && typeof mtime === 'number'
      )
    } catch (error) {
      const { message } = error as Error
      damaged(`${file} cannot be read (${message}): files that it lists are not removed any more`)
    }
    return new Manifest(options, new Map(stamps))
  }

  get names(): readonly string[] {
    return [...this.stamps.keys()]
  }

  /** Notes new files. `at`: their path, if not in the directory. Durable when it resolves. */
  add(names: Iterable<string>, at?: string): Promise<void> {
    return this.#note(names, name => stampOf(at ?? join(this.o.directory, name)))
  }

  /**
   * Notes files that svcd made some time ago, unless their size is wrong. An earlier note stays: a file that
   * differs from it is somebody else's. Durable when it resolves.
   */
  find(names: Iterable<string>, bytes: ReadonlyMap<string, number>): Promise<void> {
    return this.#note(names, async name => {
      // svcd makes a new torrent for a new tracker.
      if (this.stamps.has(name) && !name.endsWith('.torrent')) return undefined
      const stamp = await stampOf(join(this.o.directory, name))
      return stamp?.bytes === (bytes.get(name) ?? stamp?.bytes) ? stamp : undefined
    })
  }

  /** Keeps new files for a while for an object that is about to name them. The caller holds `files`. */
  async keep(names: readonly string[]): Promise<void> {
    await this.add(names)
    for (const name of names) this.#kept.set(name, this.o.ticks() + KEPT_MS)
  }

  isKept(name: string): boolean {
    const until = this.#kept.get(name) ?? 0
    if (until < this.o.ticks()) this.#kept.delete(name)
    return this.#kept.has(name)
  }

  async #note(names: Iterable<string>, wanted: (name: string) => Promise<Stamp | undefined>): Promise<void> {
    const stamps = new Map(this.stamps)
    let isChanged = false
    for (const name of names) {
      const stamp = await wanted(name)
      if (!stamp || isSame(stamps.get(name), stamp)) continue
      stamps.set(name, stamp)
      isChanged = true
    }
    if (isChanged) await this.#store(stamps)
  }

  /**
   * Removes unchanged files from the directory, and all from the list; returns the removed ones. A file that
   * cannot be removed stays in the list; the first error is thrown when all were tried.
   */
  async remove(names: readonly string[]): Promise<string[]> {
    const stamps = new Map(this.stamps)
    const removed: string[] = []
    let failure: unknown
    for (const name of names)
      try {
        const path = join(this.o.directory, name)
        const now = await stampOf(path)
        if (now && isSame(stamps.get(name), now)) {
          await rm(path)
          removed.push(name)
        }
        stamps.delete(name)
      } catch (error) {
        failure ??= error
      }
    if (names.length > 0) await this.#store(stamps)
    if (failure) throw failure
    return removed
  }

  async #store(stamps: Map<string, Stamp>): Promise<void> {
    await replaceDurably(this.o.file, `${JSON.stringify(Object.fromEntries(stamps), undefined, 2)}\n`)
    this.stamps = stamps
  }
}

const isSame = (one: Stamp | undefined, other: Stamp) =>
  one?.bytes === other.bytes && one.mtime === other.mtime

/** Returns undefined where there is no regular file. */
async function stampOf(path: string): Promise<Stamp | undefined> {
  const found = await unlessMissing(lstat(path), undefined)
  return found?.isFile() ? { bytes: found.size, mtime: found.mtimeMs } : undefined
}
