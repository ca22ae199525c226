import type { Hashed } from './in-worker.js'

export interface PackRequest {
  /** The real directory of the image, with no link left, or the path of one that is held open (disk/open-directory.ts). */
  readonly tree: string
  /** The same as a program finds it that is run `through` these words (`run`); default: `tree`. */
  readonly path?: string | undefined
  readonly through?: readonly string[]
  /** Patterns as in contents.ts: `/var/cache/*`. */
  readonly excludes: readonly string[]
  /** Made by the packer (0600); must not be there yet. */
  readonly output: string
  /** Who gets it; default: who packs. */
  readonly owner?: { readonly uid: number; readonly gid: number }
  readonly signal: AbortSignal
  readonly timeLimitMs: number
  /** 0..1, never less than before. A pack that takes less than a second may not call it. */
  progress(fraction: number): void
  /** What the packer says about single files. */
  line(text: string): unknown
}

/** What was packed, with the checksum and the size of the output file. */
export interface Packed extends Hashed {
  /** What it could not carry: sentences for the record, with a bounded number of names in each. */
  readonly omitted: readonly string[]
}

/** Makes one file of an image's directory. What is mounted in it, or lies on another file system, stays out. */
export interface Packer {
  readonly name: 'system' | 'builtin'
  /** How the file's name is to end: '.tar.zst', '.tar.gz', '.tar'. */
  readonly suffix: string
  /**
   * Writes an archive of the members `./…`, sorted, with owners as numbers: the same tree gives the same bytes. When it
   * resolves, the file's content is durable, its name is not. Throws an Error with the reason when anything cannot be
   * read or written or changes meanwhile, and when it is stopped or out of time; the file is gone then.
   */
  pack(request: PackRequest): Promise<Packed>
}

/** How many names of each kind the record of a pack holds. */
const NAMED = 20

/** What a pack does not carry, gathered for its record: each kind with its count and its first names. */
export class Omitted {
  readonly #kinds = new Map<string, { count: number; readonly names: string[] }>()

  /** `kind` begins a sentence ("sockets are left out"); `name` is printable. */
  add(kind: string, name: string): void {
    const found = this.#kinds.get(kind) ?? { count: 0, names: [] }
    this.#kinds.set(kind, found)
    found.count++
    if (found.names.length < NAMED) found.names.push(name)
  }

  sentences(): string[] {
    return [...this.#kinds].map(
      ([kind, { count, names }]) =>
        `${kind} (${count}): ${names.join(', ')}${count > names.length ? ', …' : ''}`
    )
  }
}

export const SOCKETS = 'sockets are left out'
export const ELSEWHERE = 'what is mounted in the image or lies on another file system is left out'
