import { link, rename, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { Mutex } from '../../concurrency.js'
import type { Config } from '../../config/types.js'
import { exists, syncDirectory, syncFile, unlessMissing } from '../../disk/file.js'
import type { Log } from '../../log.js'
import { leastFree } from '../../monitor/disk-space.js'
import { hashFile } from '../packer/in-worker.js'
import { servedMode } from '../publish.js'
import {
  type Asking,
  checksumAt,
  download,
  type Patience,
  SlowError,
  type Source,
  SourceError
} from './download.js'
import type { NamedFile } from './named.js'
import type { OwnedFiles } from './owned.js'

/** What the fetching of a file uses. */
export interface FetcherOptions {
  readonly config: Pick<Config, 'monitor' | 'paths'>
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed. */
  readonly files: Mutex
  /** The other controllers, in the order in which they are asked. */
  readonly sources: () => readonly Source[]
  readonly asking: Asking
}

/** A file as it has to be. */
interface Wanted {
  readonly name: string
  readonly bytes: number
  readonly sha256: string
}

/** What came of a try: the file is here; another large file comes first; svcd ends; or why it did not come, by each that was asked. */
export type Outcome = 'here' | 'held' | 'ended' | readonly Error[]

/** A larger file is a large one: those that are smaller take a moment. */
export const SMALL = 16 * 1024 * 1024
/** Who gave another file than the one asked for is not asked for it again for so long, twice as long each time: a pack is gigabytes. */
const WRONG_MS = { first: 60_000, longest: 3_600_000 }

/** The prefix of the hidden name that a file has until it is whole. */
const PART = '.svcd-copy-'
const partName = /^\.svcd-copy-[\da-f]{16}-(.+)$/

const partOf = ({ name, sha256 }: Wanted) => `${PART}${sha256.slice(0, 16)}-${name}`

/** Fetches a file from the other controllers, and gives it its name when it is whole, checked and durable (rules 11.19). */
export class Fetcher {
  readonly #directory: string
  readonly #room: Room
  /** Controller and file → until when it is not asked, and how often it gave another file. */
  readonly #wrong = new Map<string, { readonly until: number; readonly times: number }>()

  constructor(
    private readonly options: FetcherOptions,
    private readonly owned: OwnedFiles
  ) {
    this.#directory = options.config.paths.files
    this.#room = new Room(this.#directory, options.config.monitor.disk_free)
  }

  /** Fetches a file from the controllers, the next one where one fails or is slow. `takesLarge`: whether a large file may be fetched now. */
  async fetch(file: NamedFile, takesLarge: () => boolean, signal: AbortSignal): Promise<Outcome> {
    let failures: Error[]
    let slow: { readonly source: Source; readonly bytes: number }[]
    do {
      failures = []
      slow = []
      for (const [source, patience] of turns(this.options.sources(), slow)) {
        const came = await this.#fetchFrom(source, file, patience, takesLarge, signal).catch(
          error => error as Error
        )
        if (came === 'held') return came
        if (came === 'here') {
          // The other one still has something else.
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
        // Another controller would not help where this one cannot take the file.
        if (!(came instanceof SourceError)) return failures
      }
    } while (slow.length > 0)
    return failures
  }

  /** Forgets what was found out of files that are not missing any more, and removes what has come of them: `all` is in the directory. */
  async tidy(missing: ReadonlySet<string>, all: readonly string[]): Promise<void> {
    // For a while it is remembered how often: it may do so again.
    for (const [key, { until }] of this.#wrong)
      if (until + WRONG_MS.longest <= this.options.ticks()) this.#wrong.delete(key)
    for (const entry of all) {
      const [, name = ''] = partName.exec(entry) ?? []
      if (entry.startsWith(PART) && !missing.has(name))
        await rm(join(this.#directory, entry), { force: true })
    }
  }

  /** Throws SourceError, and Error for what is wrong on this side. */
  async #fetchFrom(
    source: Source,
    { name, pack }: NamedFile,
    patience: Patience,
    takesLarge: () => boolean,
    signal: AbortSignal
  ): Promise<'here' | 'held'> {
    const { bytes, sha256 } = pack ?? (await checksumAt(source, name, this.options.asking, signal))
    const wanted = { name, bytes, sha256 }
    if (bytes > SMALL && !takesLarge()) return 'held'
    const key = `${source.url} ${sha256}`
    const { until = 0, times = 0 } = this.#wrong.get(key) ?? {}
    const wrong = () =>
      new SourceError(
        'wrong',
        `what controller ${source.name} (${source.url}) gives is another file, by its checksum or its size; it is asked ` +
          'for it again in a minute, then later and later, every hour at last: put the right file there, or pack the image again'
      )
    if (until > this.options.ticks()) throw wrong()
    const part = join(this.#directory, partOf(wanted))
    const isRight = () => this.#isFetched(source, wanted, part, patience, signal)
    // A bit may have changed on the way; what was there before may be of a power cut, or of another controller: once more, from the begin.
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

  /** Whether the part is the file that is wanted, once all of it has come; it is removed if not. */
  async #isFetched(
    source: Source,
    wanted: Wanted,
    part: string,
    patience: Patience,
    signal: AbortSignal
  ): Promise<boolean> {
    try {
      await this.#room.during(part, wanted.bytes, () =>
        download(source, wanted, part, this.options.asking, signal, patience)
      )
    } catch (error) {
      if (error instanceof SourceError && error.kind === 'wrong') return false
      // Others need the room as well.
      if (error instanceof NoRoomError && error.isFull) await rm(part, { force: true })
      throw error
    }
    const { sha256, bytes } = await hashFile(part, signal)
    if (sha256 === wanted.sha256 && bytes === wanted.bytes) return true
    await rm(part, { force: true })
    return false
  }

  /** Gives a whole file its name, unless something has it by now. */
  async #place(part: string, name: string): Promise<void> {
    const directory = this.#directory
    await syncFile(part, await servedMode(directory))
    await this.options.files.run(async () => {
      // Before it has the name: a crash must not make it somebody else's.
      await this.owned.add([name], part)
      await nameNew(part, join(directory, name))
      await rm(part, { force: true })
      await syncDirectory(directory)
    })
  }
}

/**
 * In which order controllers are asked for a file, and how patiently. Where none sends it briskly, the fastest of those that were `slow`
 * has its turn.
 */
function* turns(
  sources: readonly Source[],
  slow: { readonly source: Source; readonly bytes: number }[]
): Generator<[Source, Patience]> {
  for (const source of sources) yield [source, sources.length > 1 ? 'none' : undefined]
  for (const { source } of slow.splice(0).sort((a, b) => b.bytes - a.bytes)) yield [source, 'turn']
}

/** Gives a file a further name that nothing has. Where something has it, that stays. */
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

/** The disk has no room for a file; the message names the directory and the way out. */
class NoRoomError extends Error {
  /** `isFull`: it filled up while the file came. What has come of it is in the way of others then. */
  constructor(
    message: string,
    readonly isFull: boolean
  ) {
    super(message)
  }
}

/** The room of a directory for files that are fetched at the same time. */
class Room {
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
    for (const path of [part, ...this.#fetching.keys()]) sizes.set(path, await sizeOf(path))
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

/** Returns the size of a file in bytes; 0 where there is none. */
const sizeOf = async (path: string): Promise<number> =>
  (await unlessMissing(stat(path), undefined))?.size ?? 0
