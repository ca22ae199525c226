import { link, mkdir, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { inParallel } from '../store/files.js'
import type { RenderedFile } from './backend.js'

/** Names that no server takes for its own: a server that reads a whole directory leaves out what begins with a dot. */
const beside = (path: string, what: string) => join(dirname(path), `.${basename(path)}.${what}`)

/** Where a file stands before it is put in force. */
export const stagedPath = (path: string) => beside(path, 'new')
/** Where a file is kept that was not put in force. */
export const rejectedPath = (path: string) => beside(path, 'rejected')
const oldPath = (path: string) => beside(path, 'old')

const atOnce = 16
const directoryMode = 0o755

/** Writes files beside their places, durably. When one cannot be written none stays, and the error is thrown. */
export async function stage(files: readonly RenderedFile[]): Promise<void> {
  try {
    for (const directory of new Set(files.map(({ path }) => dirname(path))))
      await mkdir(directory, { recursive: true, mode: directoryMode })
    await inParallel(files, atOnce, write)
  } catch (error) {
    await unstage(files)
    throw error
  }
}

async function write({ path, text, mode }: RenderedFile): Promise<void> {
  const staged = stagedPath(path)
  await rm(staged, { force: true })
  const file = await open(staged, 'wx', mode)
  try {
    await file.writeFile(text)
    // The umask is none of the server's business.
    await file.chmod(mode)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Removes what was staged. */
export async function unstage(files: readonly RenderedFile[]): Promise<void> {
  await inParallel(files, atOnce, ({ path }) => rm(stagedPath(path), { force: true }).catch(() => {}))
}

/** Keeps what was staged for the admin to look at, beside its place. */
export async function reject(files: readonly RenderedFile[]): Promise<void> {
  await inParallel(files, atOnce, ({ path }) => rename(stagedPath(path), rejectedPath(path)))
}

/** Staged files put in force as one set: all of them, or none. What was in force before can be had back. */
export class Swap {
  /** What was done, in order: how each is taken back. */
  readonly #undo: (() => Promise<void>)[] = []
  readonly #paths: readonly string[]
  /** The files before are in force again. */
  isBack = false

  private constructor(
    readonly files: readonly RenderedFile[],
    removed: readonly string[]
  ) {
    this.#paths = [...files.map(({ path }) => path), ...removed]
  }

  /** Throws when a file cannot be moved; everything is as it was then. */
  static async run(files: readonly RenderedFile[], removed: readonly string[]): Promise<Swap> {
    const swap = new Swap(files, removed)
    try {
      await inParallel(files, atOnce, ({ path }) => swap.#put(path))
      await inParallel(removed, atOnce, path => swap.#remove(path))
      await swap.#sync()
    } catch (error) {
      await swap.#takeBack()
      await unstage(files)
      throw error
    }
    return swap
  }

  /** Puts the files back that were in force before; the others are kept as rejected. */
  async back(): Promise<void> {
    this.isBack = true
    await inParallel(this.files, atOnce, ({ path }) => rename(path, rejectedPath(path)))
    await this.#takeBack()
    await this.#sync()
  }

  /** The new files stay: what they replaced goes, and what was rejected before. */
  async keep(): Promise<void> {
    await inParallel(this.#paths, atOnce, async path => {
      await rm(oldPath(path), { force: true })
      await rm(rejectedPath(path), { force: true })
    })
  }

  async #put(path: string): Promise<void> {
    await rm(oldPath(path), { force: true })
    const existed = await link(path, oldPath(path)).then(
      () => true,
      error => unlessMissing(error)
    )
    this.#undo.push(() => (existed ? rename(oldPath(path), path) : rm(path, { force: true })))
    await rename(stagedPath(path), path)
  }

  async #remove(path: string): Promise<void> {
    const existed = await rename(path, oldPath(path)).then(
      () => true,
      error => unlessMissing(error)
    )
    if (existed) this.#undo.push(() => rename(oldPath(path), path))
  }

  async #takeBack(): Promise<void> {
    await inParallel(this.#undo.splice(0), atOnce, undo => undo())
  }

  async #sync(): Promise<void> {
    for (const directory of new Set(this.#paths.map(path => dirname(path)))) {
      const handle = await open(directory)
      await handle.sync().finally(() => handle.close())
    }
  }
}

function unlessMissing(error: NodeJS.ErrnoException): false {
  if (error.code !== 'ENOENT') throw error
  return false
}
