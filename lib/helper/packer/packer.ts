import type { Course } from '../../program/program.js'
import type { Hashed } from './in-worker.js'

export interface PackRequest extends Course {
  /** The image's directory with no link left, or the path of one that is held open. */
  readonly tree: string
  /** `tree` as a program sees it that is run by these words (`wrapper` of `run`); default: `tree`. */
  readonly path?: string | undefined
  readonly through?: readonly string[]
  /** Patterns as in contents.ts: `/var/cache/*`. */
  readonly excludes: readonly string[]
  /** Made by the packer (0600); must not be there yet. */
  readonly output: string
  /** Owner of the output; default: this process's user. */
  readonly owner?: { readonly uid: number; readonly gid: number }
  /** 0..1, never less than before. A pack that takes less than a second may not call it. */
  progress(fraction: number): void
}

/** Result of a pack, with the checksum and the size of the output. */
export interface PackResult extends Hashed {
  /** Sentences for the record about files and attributes that were left out, with few names in each. */
  readonly omitted: readonly string[]
}

/** Makes one file of an image's directory, without mounts and other file systems. */
export interface Packer {
  readonly name: 'system' | 'builtin'
  /** Suffix of the file's name: '.tar.zst', '.tar.gz', '.tar'. */
  readonly suffix: string
  /**
   * Writes an archive of the members `./…`, sorted, with owners as numbers: the same tree gives the same
   * bytes. The content is durable, the name is not. Throws an Error with the reason; the file is gone then.
   */
  pack(request: PackRequest): Promise<PackResult>
}

/** Names of each kind in the record of a pack. */
const NAMED = 20

/** Gathers what a pack leaves out: each kind with its count and its first names. */
export class Omissions {
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
export const OTHER_FILESYSTEM = 'what is mounted in the image or lies on another file system is left out'
