import { link, rename, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { Mutex } from '../../base/concurrency.js'
import type { Log } from '../../base/log.js'
import type { Config } from '../../config/types.js'
import { exists, syncDirectory, syncFile, unlessMissing } from '../../disk/file.js'
import { type Hashed, hashFile } from '../../helper/packer/in-worker.js'
import { leastFree } from '../../monitor/health.js'
import type { Manifest } from '../manifest.js'
import { servedMode } from '../publish.js'
import {
  type Ask,
  type Asking,
  checksumAt,
  download,
  type Patience,
  SlowError,
  type Source,
  SourceError
} from './download.js'
import type { NamedFile } from './named.js'

export interface FetcherOptions {
  readonly config: Pick<Config, 'monitor' | 'paths'>
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed. */
  readonly files: Mutex
  readonly manifest: Pick<Manifest, 'add'> | undefined
  /** Returns the other controllers, in the order in which they are asked. */
  readonly sources: () => readonly Source[]
  readonly asking: Asking
}

type Wanted = Hashed & { readonly name: string }

/** `held`: another large file comes first; `ended`: svcd stops; else why each controller failed. */
export type Outcome = 'here' | 'held' | 'ended' | readonly Error[]

/** Bytes. Only one larger file is fetched at a time. */
export const SMALL = 16 * 1024 * 1024
/** Backoff of a controller that gave a wrong file: a pack is gigabytes. */
const WRONG_MS = { first: 60_000, longest: 3_600_000 }

/** The prefix of the hidden name that a file has until it is whole. */
const PART = '.svcd-copy-'
const partName = /^\.svcd-copy-[\da-f]{16}-(.+)$/

const partOf = ({ name, sha256 }: Wanted) => `${PART}${sha256.slice(0, 16)}-${name}`

/** Fetches files from the other controllers. A file gets its name when it is checked and durable. */
export class Fetcher {
  readonly #directory: string
  readonly #room: Room
  /** Controller and file, with the end of the backoff and the number of wrong files. */
  readonly #wrong = new Map<string, { readonly until: number; readonly times: number }>()

  constructor(private readonly options: FetcherOptions) {
    this.#directory = options.config.paths.files
    this.#room = new Room(this.#directory, options.config.monitor.disk_free)
  }

  /** Fetches from the next controller where one fails or is slow. `takesLarge`: a large one may come. */
  async fetch(file: NamedFile, takesLarge: () => boolean, signal: AbortSignal): Promise<Outcome> {
    let failures: Error[]
    let slow: { readonly source: Source; readonly bytes: number }[]
    do {
      failures = []
      slow = []
      for (const [source, patience] of turns(this.options.sources(), slow)) {
        const coming = this.#fetchFrom(source, file, patience, takesLarge, signal)
        const came = await coming.catch(error => error as Error)
        if (came === 'held') return came
        if (came === 'here') {
          // A controller with a wrong file still has it.
          for (const failure of failures)
            if (failure instanceof SourceError && failure.kind === 'wrong')
              this.options.log.warn(`${file.name}: ${failure.message}`)
          return came
        }
        if (signal.aborted) return 'ended'
        if (came instanceof SlowError) {
          slow.push({ source, bytes: came.bytes })
          if (patience === 'turn') break
          continue
        }
        failures.push(came)
        // The fault is here: another controller would not help.
        if (!(came instanceof SourceError)) return failures
      }
    } while (slow.length > 0)
    return failures
  }

  /** Removes the parts of files that are not missing any more; `all`: the names in the directory. */
  async tidy(missing: ReadonlySet<string>, all: readonly string[]): Promise<void> {
    // The count stays for a while: the controller may give a wrong file again.
    for (const [key, { until }] of this.#wrong)
      if (until + WRONG_MS.longest <= this.options.ticks()) this.#wrong.delete(key)
    for (const entry of all) {
      const [, name = ''] = partName.exec(entry) ?? []
      if (entry.startsWith(PART) && !missing.has(name))
        await rm(join(this.#directory, entry), { force: true })
    }
  }

  /** Throws SourceError, and Error for a fault on this side. */
  async #fetchFrom(
    source: Source,
    { name, pack }: NamedFile,
    patience: Patience,
    takesLarge: () => boolean,
    signal: AbortSignal
  ): Promise<'here' | 'held'> {
    const ask = { source, asking: this.options.asking, signal }
    const { bytes, sha256 } = pack ?? (await checksumAt(ask, name))
    const wanted = { name, bytes, sha256 }
    if (bytes > SMALL && !takesLarge()) return 'held'
    const key = `${source.url} ${sha256}`
    const { until = 0, times = 0 } = this.#wrong.get(key) ?? {}
    const wrong = () =>
      new SourceError(
        'wrong',
        `what controller ${source.name} (${source.url}) gives is another file, by its checksum or its ` +
          'size; it is asked for it again in a minute, then later and later, every hour at last: put the ' +
          'right file there, or pack the image again'
      )
    if (until > this.options.ticks()) throw wrong()
    const part = join(this.#directory, partOf(wanted))
    const isRight = () => this.#isFetched(ask, wanted, part, patience)
    // The part may stem from a power cut or another controller, and bits may flip: try once more from zero.
    if (!(await isRight()) && !(await isRight())) {
      const ms = Math.min(WRONG_MS.first * 2 ** times, WRONG_MS.longest)
      this.#wrong.set(key, { until: this.options.ticks() + ms, times: times + 1 })
      throw wrong()
    }
    this.#wrong.delete(key)
    await this.#place(part, name)
    this.options.log.info(
      `${name} (${bytes} bytes) was fetched from controller ${source.name} (${source.url})`
    )
    return 'here'
  }

  /** Fetches the rest of a part; returns whether the whole is the wanted file. A wrong one is removed. */
  async #isFetched(ask: Ask, wanted: Wanted, part: string, patience: Patience): Promise<boolean> {
    try {
      await this.#room.during(part, wanted.bytes, () => download(ask, wanted, part, patience))
    } catch (error) {
      if (error instanceof SourceError && error.kind === 'wrong') return false
      if (error instanceof DiskFullError) await rm(part, { force: true })
      throw error
    }
    const { sha256, bytes } = await hashFile(part, ask.signal)
    if (sha256 === wanted.sha256 && bytes === wanted.bytes) return true
    await rm(part, { force: true })
    return false
  }

  /** Gives a whole file its name, unless something else has the name. */
  async #place(part: string, name: string): Promise<void> {
    const directory = this.#directory
    await syncFile(part, await servedMode(directory))
    await this.options.files.run(async () => {
      // Noted before it has the name: after a crash svcd must still know the file as its own.
      await this.options.manifest?.add([name], part)
      await nameNew(part, join(directory, name))
      await rm(part, { force: true })
      await syncDirectory(directory)
    })
  }
}

/** Yields the controllers in their order. Where none is brisk, the fastest slow one gets a turn. */
function* turns(
  sources: readonly Source[],
  slow: { readonly source: Source; readonly bytes: number }[]
): Generator<[Source, Patience]> {
  for (const source of sources) yield [source, sources.length > 1 ? 'none' : undefined]
  for (const { source } of slow.splice(0).sort((a, b) => b.bytes - a.bytes)) yield [source, 'turn']
}

/** Gives a file a further name, unless something else has that name. */
async function nameNew(file: string, to: string): Promise<void> {
  try {
    await link(file, to)
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return
    // Not every file system has links.
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'].includes(code)) throw error
    if (!(await exists(to))) await rename(file, to)
  }
}

/** The disk filled up while a file came: its part is in the way of other files. */
class DiskFullError extends Error {}

/** Admits files that are fetched at the same time, by the free space of their directory. */
class Room {
  /** Parts that are fetched now, with the bytes that each will have. */
  readonly #fetching = new Map<string, number>()

  /** `kept`: `[monitor] disk_free`. */
  constructor(
    private readonly directory: string,
    private readonly kept: number
  ) {}

  /** Runs `fetching`, which brings a part to `bytes`. Throws Error where there is no room. */
  async during<T>(part: string, bytes: number, fetching: () => Promise<T>): Promise<T> {
    try {
      await this.#take(part, bytes)
      return await fetching()
    } catch (error) {
      const { code = '' } = error as NodeJS.ErrnoException
      throw ['ENOSPC', 'EDQUOT'].includes(code) ? new DiskFullError(this.#noRoom(bytes)) : error
    } finally {
      this.#fetching.delete(part)
    }
  }

  async #take(part: string, bytes: number): Promise<void> {
    const { bsize, blocks, bavail } = await statfs(this.directory)
    const sizes = new Map<string, number>()
    for (const path of [part, ...this.#fetching.keys()]) sizes.set(path, await sizeOf(path))
    // No await from here on: of two that begin together, one is noted first.
    let needed = bytes - (sizes.get(part) ?? 0)
    for (const [other, whole] of this.#fetching) needed += whole - (sizes.get(other) ?? 0)
    const kept = leastFree(blocks * bsize, this.kept)
    if (needed > bavail * bsize - kept) throw new Error(this.#noRoom(bytes))
    this.#fetching.set(part, bytes)
  }

  #noRoom(bytes: number): string {
    return (
      `the disk of ${this.directory} has no room for its ${bytes} bytes beside what [monitor] disk_free ` +
      'keeps and other files that are fetched need: make room; svcd tries again'
    )
  }
}

/** Returns the size of a file in bytes; 0 where there is none. */
const sizeOf = async (path: string): Promise<number> =>
  (await unlessMissing(stat(path), undefined))?.size ?? 0
