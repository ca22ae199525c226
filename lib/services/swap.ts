import { chmod, constants, copyFile, link, mkdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { inParallel } from '../base/concurrency.js'
import { exists, syncDirectory, unlessMissing, writeNew } from '../disk/file.js'
import { RecordMap } from '../store/record-map.js'
import type { OpenRecords } from '../store/records.js'
import type { ReloadKind, RenderedFile } from './backend.js'
import type { Serials } from './dns/serials.js'

/** Returns a name beside a file. Servers that read a whole directory skip it for its leading dot. */
const hiddenName = (path: string, what: string) => join(dirname(path), `.${basename(path)}.${what}`)

/** Path of a file before it is in force. */
export const stagedPath = (path: string) => hiddenName(path, 'new')
/** Path of a refused file. */
export const rejectedPath = (path: string) => hiddenName(path, 'rejected')
const oldPath = (path: string) => hiddenName(path, 'old')
/** Files that a killed daemon or a refusal may leave beside a file. */
export const leftPaths = (path: string) => [stagedPath(path), rejectedPath(path), oldPath(path)]
/** Whether a name is one of `leftPaths`, of a file with this suffix. */
export const isLeft = (name: string, suffix: string) =>
  name.startsWith('.') && leftPaths(suffix).some(left => name.endsWith(left.slice(1)))
/** Path of the copy of a file that was there before svcd. */
const foreignPath = (path: string) => hiddenName(path, 'before-svcd')

const atOnce = 16
const directoryMode = 0o755

/** Writes files beside their places, durably: all, or none and an error. */
export async function stage(files: readonly RenderedFile[]): Promise<void> {
  try {
    for (const directory of new Set(files.map(({ path }) => dirname(path)))) await make(directory)
    await inParallel(files, atOnce, async ({ path, text, mode = 0o644 }) => {
      await rm(stagedPath(path), { force: true })
      await writeNew(stagedPath(path), text, mode)
    })
  } catch (error) {
    await unstage(files)
    throw error
  }
}

async function make(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true })
  if (first === undefined) return
  // The server has to read it, whatever svcd's umask is.
  for (let made = resolve(directory); made.length >= first.length; made = dirname(made))
    await chmod(made, directoryMode)
}

/** Removes staged files. */
export async function unstage(files: readonly RenderedFile[]): Promise<void> {
  await inParallel(files, atOnce, ({ path }) => rm(stagedPath(path), { force: true }).catch(() => {}))
}

/** Keeps staged files beside their places, for the admin to look at. */
export async function reject(files: readonly RenderedFile[]): Promise<void> {
  await inParallel(files, atOnce, ({ path }) => rename(stagedPath(path), rejectedPath(path)))
}

/** Keeps a copy of each file that is not svcd's, once, so that an admin's own configuration is not lost. */
export async function keepForeign(paths: readonly string[]): Promise<void> {
  await inParallel(paths, atOnce, async path => {
    if (!(await exists(foreignPath(path))))
      await unlessMissing(copyFile(path, foreignPath(path), constants.COPYFILE_EXCL), undefined)
  })
}

/** Removes files; a missing one is fine. */
export async function clear(paths: readonly string[]): Promise<void> {
  await inParallel(paths, atOnce, path => rm(path, { force: true }))
}

/** The files of a swap, noted so that it can be taken back after a crash. */
export interface SwapPlan {
  readonly put: readonly string[]
  /** Files of `put` that did not exist before: taking the swap back removes them. */
  readonly fresh: readonly string[]
  readonly removed: readonly string[]
}

/** Puts staged files in force as one set, all or none, and can put the old ones back. */
export class Swap {
  readonly #all: readonly string[]
  readonly #fresh: ReadonlySet<string>

  /** A swap that an earlier daemon has begun. */
  constructor(readonly plan: SwapPlan) {
    this.#all = [...plan.put, ...plan.removed]
    this.#fresh = new Set(plan.fresh)
  }

  /** Prepares a swap of staged files; nothing is in force yet. */
  static async of(put: readonly string[], removed: readonly string[]): Promise<Swap> {
    // Old files of an earlier swap must not pass for those that this one replaces.
    await clear([...put, ...removed].map(oldPath))
    const fresh: string[] = []
    await inParallel(put, atOnce, async path => {
      if (!(await exists(path))) fresh.push(path)
    })
    return new Swap({ put, fresh, removed })
  }

  /** Puts the files in force. Throws when one cannot be moved; all is as before then. */
  async run(): Promise<void> {
    const { put, removed } = this.plan
    try {
      await inParallel(put, atOnce, path => this.#put(path))
      await inParallel(removed, atOnce, path => unlessMissing(rename(path, oldPath(path)), undefined))
      await this.#sync()
    } catch (error) {
      await this.#takeBack()
      throw error
    }
  }

  /** Whether all of its files were moved. */
  async isWhole(): Promise<boolean> {
    const { put, removed } = this.plan
    for (const path of [...put.map(stagedPath), ...removed]) if (await exists(path)) return false
    return true
  }

  /** Puts the old files back; the new ones are kept as rejected. */
  async back(): Promise<void> {
    await inParallel(this.plan.put, atOnce, async path => {
      await rm(rejectedPath(path), { force: true })
      // The admin may look at them. A full disk must not keep the old files from coming back.
      await link(path, rejectedPath(path)).catch(() => {})
    })
    await this.#takeBack()
    await this.#sync()
  }

  /** Removes the old files and earlier rejected ones: the new files stay. */
  async keep(): Promise<void> {
    await clear(this.#all.flatMap(path => [oldPath(path), rejectedPath(path)]))
  }

  async #put(path: string): Promise<void> {
    if (!this.#fresh.has(path)) await link(path, oldPath(path))
    await rename(stagedPath(path), path)
  }

  async #takeBack(): Promise<void> {
    const { put, removed } = this.plan
    await inParallel(put, atOnce, path =>
      this.#fresh.has(path)
        ? rm(path, { force: true })
        : unlessMissing(rename(oldPath(path), path), undefined)
    )
    await inParallel(removed, atOnce, path => unlessMissing(rename(oldPath(path), path), undefined))
    await clear(put.map(stagedPath))
  }

  async #sync(): Promise<void> {
    for (const directory of new Set(this.#all.map(path => dirname(path)))) await syncDirectory(directory)
  }
}

/** State of a service that survives a restart. */
export interface ServiceState {
  readonly serials: Serials
  /** How the server still has to take the files in force; '' for not at all. */
  readonly due: ReloadKind | ''
  /** The swap with which the server was not seen to run yet: if it falls, svcd restarts it or swaps back. */
  readonly trial: SwapPlan | undefined
}

/** Opens what is known of the services, by name. */
export const openNotes = (open: OpenRecords): Promise<RecordMap<ServiceState>> =>
  RecordMap.open(open, stateIn)

/** The notes of a service. If they are missing, serials start from the clock and the zones in force. */
export class Notes {
  #now: ServiceState

  constructor(
    private readonly stored: Pick<RecordMap<ServiceState>, 'get' | 'set'>,
    private readonly service: string
  ) {
    this.#now = stored.get(service) ?? { serials: {}, due: '', trial: undefined }
  }

  get now(): ServiceState {
    return this.#now
  }

  /** Changes the notes. The change holds once it is durable, when this resolves. */
  async keep(change: Partial<ServiceState>): Promise<void> {
    const next = { ...this.#now, ...change }
    await this.stored.set(this.service, next)
    this.#now = next
  }

  /** Notes a finished step at once, so that a full disk does not repeat it; durable when this resolves. */
  done(change: Partial<ServiceState>): Promise<void> {
    this.#now = { ...this.#now, ...change }
    return this.stored.set(this.service, this.#now)
  }
}

/** Reads stored notes; what is no such value in them is left out. */
function stateIn(json: unknown): ServiceState {
  const { serials = {}, due = '', trial } = json as Partial<ServiceState>
  const numbers = Object.entries(serials).filter(([, serial]) => Number.isInteger(serial))
  return {
    serials: Object.fromEntries(numbers),
    due: due === 'restart' || due === '' ? due : 'reload',
    trial: isPlan(trial) ? trial : undefined
  }
}

function isPlan(plan: unknown): plan is SwapPlan {
  const { put, fresh, removed } = (plan ?? {}) as Record<string, unknown>
  return [put, fresh, removed].every(
    paths => Array.isArray(paths) && paths.every(path => typeof path === 'string')
  )
}
