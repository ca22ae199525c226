import { Mutex } from '../../base/concurrency.js'
import { Thread } from '../../base/thread.js'

/** A file of the files directory whose content is known. */
export interface KnownFile {
  readonly size: number
  readonly mtimeMs: number
  readonly ino: number
  readonly sha256: string
  /** Authenticode's SHA-256 of a program for UEFI, without its signatures, in hex; else undefined. */
  readonly program?: string
}

/** A loader: its name in the tree, and the file that it is a copy of. */
export interface LoaderFile {
  readonly name: string
  readonly from: string
  /** The end of a sentence: how to get it. Undefined: it may be missing. */
  readonly install?: string
}

/** Input of the thread. */
export interface PlaceJob {
  readonly directory: string
  readonly files: string
  readonly names: readonly string[]
  readonly loaders: readonly LoaderFile[]
  readonly known: Readonly<Record<string, KnownFile>>
  /** The loaders as they were. */
  readonly programs: Readonly<Record<string, KnownFile>>
  /** Contents that stay besides those of `names`: SHA-256 in hex; undefined: all that are there. */
  readonly kept: readonly string[] | undefined
}

/** Result of the thread: the contents of `names` that are there, and the loaders that are not. */
export interface Placed {
  readonly known: Readonly<Record<string, KnownFile>>
  readonly missing: readonly string[]
  /** The loaders that are there, by their names. */
  readonly programs: Readonly<Record<string, KnownFile>>
  /** Names of the contents that were there. */
  readonly there: readonly string[]
}

interface TreeOptions {
  readonly directory: string
  /** The files directory. */
  readonly files: string
  readonly loaders: readonly LoaderFile[]
  readonly ticks: () => number
}

/** A boot that has begun may ask for a kernel so long after no configuration names it any more. */
const KEPT_MS = 3_600_000

/** The binaries of the TFTP tree: loaders by name, kernels and initramfs by content. */
export class BootTree {
  readonly #thread = new Thread<PlaceJob, Placed>(new URL('./tree-worker.js', import.meta.url))
  #known: Placed['known'] = {}
  #programs: Placed['programs'] = {}
  /** Names and programs of contents that are named, or were within the hour, by their hashes. */
  readonly #contents = new Map<string, { name: string; program?: string }>()
  /** When a content was last named, by its hash. */
  readonly #named = new Map<string, number>()
  #isFirst = true
  readonly #placing = new Mutex()

  constructor(private readonly o: TreeOptions) {}

  /** Returns the SHA-256 of a file, in hex; undefined if it is not in the tree. */
  sha256(name: string): string | undefined {
    return this.#known[name]?.sha256
  }

  /** Returns the SHA-256 of a loader without its signatures; undefined if it is no such program. */
  loader(name: string): string | undefined {
    return this.#programs[name]?.program
  }

  /** Returns the name of a content, and its SHA-256 as a program without signatures, as far as known. */
  content(sha256: string): { readonly name?: string; readonly program?: string } | undefined {
    return this.#contents.get(sha256)
  }

  /**
   * Brings the loaders and the named files to their places, and removes what nothing has named for an hour.
   * Resolves with whether a content is another one than before. Throws Error for a loader that is missing.
   */
  place(names: readonly string[]): Promise<boolean> {
    return this.#placing.run(() => this.#place(names))
  }

  async #place(names: readonly string[]): Promise<boolean> {
    const { ticks, ...rest } = this.o
    const now = ticks()
    for (const { sha256 } of Object.values(this.#known)) this.#named.set(sha256, now)
    for (const [sha256, at] of this.#named)
      if (now - at > KEPT_MS) {
        this.#named.delete(sha256)
        this.#contents.delete(sha256)
      }
    const before = this.#known
    // An earlier daemon may have named a content a moment ago.
    const kept = this.#isFirst ? undefined : [...this.#named.keys()]
    const job = { ...rest, names, known: before, programs: this.#programs, kept }
    const { known, programs, missing, there } = await this.#thread.ask(job)
    if (this.#isFirst) for (const sha256 of there) this.#named.set(sha256, now)
    this.#isFirst = false
    this.#known = known
    for (const [name, { sha256, program }] of Object.entries(known))
      this.#contents.set(sha256, { name, ...(program === undefined ? {} : { program }) })
    this.#programs = programs
    const lacking = rest.loaders.find(({ name, install }) => install && missing.includes(name))
    if (lacking) throw new Error(`${lacking.from} is missing: ${lacking.install}`)
    return [...names, ...Object.keys(before)].some(name => known[name]?.sha256 !== before[name]?.sha256)
  }

  close(): Promise<void> {
    return this.#thread.stop()
  }
}
