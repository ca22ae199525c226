import { link, mkdir, rename, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { Mutex } from '../../concurrency.js'
import type { Config } from '../../config/types.js'
import { exists, syncDirectory, syncFile, unlessMissing } from '../../disk/file.js'
import { type Log, oneLine } from '../../log.js'
import { leastFree } from '../../monitor/disk-space.js'
import { locate, ProgramError, run } from '../../program/program.js'
import { hashFile } from '../packer/in-worker.js'
import { servedMode } from '../publish.js'
import { readAnnounce, readLength } from '../torrent/torrent.js'
import {
  ANSWER_MS,
  type Asking,
  checksumAt,
  download,
  PACE,
  type Patience,
  SlowError,
  type Source,
  SourceError
} from './download.js'
import type { NamedFile } from './named.js'
import type { OwnedFiles } from './owned.js'

/** What the fetching of a file uses. */
export interface FetcherOptions {
  readonly config: Pick<Config, 'monitor' | 'paths' | 'torrent'>
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

/** The hidden names of what is fetched begin so: what comes from a controller, and what comes by torrent. */
const PART = '.svcd-copy-'
const SWARM = '.svcd-swarm-'
const begunName = /^\.svcd-(?:copy|swarm)-[\da-f]{16}-(.+)$/

const partOf = (begin: string, { name, sha256 }: Wanted) => `${begin}${sha256.slice(0, 16)}-${name}`

/** Fetches a file from the other controllers, and gives it its name when it is whole, checked and durable (rules 11.19). */
export class Fetcher {
  readonly #directory: string
  readonly #room: Room
  /** Controller and file → until when it is not asked, and how often it gave another file. */
  readonly #wrong = new Map<string, { readonly until: number; readonly times: number }>()
  /** Files of which nothing came by torrent. */
  readonly #noSwarm = new Set<string>()

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
    for (const name of this.#noSwarm) if (!missing.has(name)) this.#noSwarm.delete(name)
    // For a while it is remembered how often: it may do so again.
    for (const [key, { until }] of this.#wrong)
      if (until + WRONG_MS.longest <= this.options.ticks()) this.#wrong.delete(key)
    for (const entry of all) {
      const [, name = ''] = begunName.exec(entry) ?? []
      if ((entry.startsWith(PART) || entry.startsWith(SWARM)) && !missing.has(name))
        await rm(join(this.#directory, entry), { recursive: true, force: true })
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
    if (pack && (await this.#swarm(source, wanted, signal))) return 'here'
    const part = join(this.#directory, partOf(PART, wanted))
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

  /** Whether a pack came by its torrent, where torrent is on. What began to come by http goes on so. */
  async #swarm(source: Source, wanted: Wanted, signal: AbortSignal): Promise<boolean> {
    const { log, asking } = this.options
    const { name, bytes } = wanted
    const swarm = new Swarm(join(this.#directory, partOf(SWARM, wanted)))
    try {
      if (!(await this.#maySwarm(wanted))) throw new SwarmError('')
      await this.#room.during(swarm.file, bytes, async () => {
        await this.#fetchTorrent(source, name, swarm, signal)
        await swarm.fetch(bytes, { ...PACE, ...asking.pace }, signal)
      })
      if ((await hashFile(swarm.file, signal)).sha256 !== wanted.sha256)
        throw new SwarmError('what came is another file, by its checksum')
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof NoRoomError && error.isFull) await swarm.remove()
      if (!(error instanceof SwarmError)) throw error
      // It comes by http, and needs the room.
      await swarm.remove()
      if (error.message === '') return false
      this.#noSwarm.add(name)
      log.info(`${name} did not come by torrent, and is fetched by http: ${error.message}`)
      return false
    }
    await this.#place(swarm.file, name)
    await swarm.remove()
    log.info(`${name} (${bytes} bytes) was fetched by torrent`)
    return true
  }

  async #maySwarm(wanted: Wanted): Promise<boolean> {
    if (this.options.config.torrent.tracker === '' || wanted.bytes <= SMALL) return false
    if (this.#noSwarm.has(wanted.name)) return false
    return !(await exists(join(this.#directory, partOf(PART, wanted)))) && (await canSwarm())
  }

  /** Puts the controller's torrent of the pack into its place. Throws SwarmError where it has none, or none that is right. */
  async #fetchTorrent(source: Source, pack: string, swarm: Swarm, signal: AbortSignal): Promise<void> {
    const name = `${pack}.torrent`
    try {
      const told = await checksumAt(source, name, this.options.asking, signal, ANSWER_MS.file)
      if (told.bytes > SMALL) throw new SwarmError('its torrent is too large')
      await swarm.make()
      const isRight = () => this.#isFetched(source, { name, ...told }, swarm.torrent, undefined, signal)
      if (!(await isRight()) && !(await isRight())) throw new SwarmError('its torrent came damaged')
    } catch (error) {
      // There may be no tracker there. Who does not answer would not give the pack either.
      if (error instanceof SourceError && error.kind === 'lacks') throw new SwarmError('')
      throw error
    }
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

/** Nothing more comes by torrent; the message says why, '' where that is as it should be. */
class SwarmError extends Error {}

const PROGRAM = 'aria2c'
/** Peers can make it take more and more memory: with so much of address space it ends. It needs a fifth of that. */
const BOUND = ['prlimit', `--as=${512 * 1024 * 1024}`, '--']
/** Its status when the disk is full. */
const DISK_FULL = 9
/** So much of what it says stands in a message. */
const WORDS = 300
const OPTIONS = [
  ...['index-out=1=file', 'allow-overwrite=true', 'check-integrity=true', 'file-allocation=none'],
  ...['disk-cache=0', 'seed-time=0', 'bt-tracker-interval=5', 'bt-tracker-timeout=10'],
  ...['bt-tracker-connect-timeout=10', 'enable-dht=false', 'enable-dht6=false', 'bt-enable-lpd=false'],
  ...[
    'enable-peer-exchange=false',
    'summary-interval=0',
    'show-console-readout=false',
    'console-log-level=warn'
  ]
]
const LOOK_MS = 1000
/** So long it may take to end when all has come. */
const END_MS = 5000
/** So fast at least is what was there before read again, a second. */
const READ_BYTES = 50 * 1024 * 1024
/** What comes briskly comes sooner. */
const LONGEST_MS = 24 * 3_600_000

/** Whether this machine has the program that fetches by torrent. */
const canSwarm = async (): Promise<boolean> => (await locate(PROGRAM)) !== undefined

/** A directory for what comes by one torrent: what is in it is used by the next try, until `remove`. */
class Swarm {
  /** Where the torrent belongs. */
  readonly torrent: string
  /** Where the file comes. */
  readonly file: string

  constructor(private readonly directory: string) {
    this.torrent = join(directory, 'torrent')
    this.file = join(directory, 'file')
  }

  async make(): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o700 })
  }

  async remove(): Promise<void> {
    await rm(this.directory, { recursive: true, force: true })
  }

  /**
   * Fetches the file of the torrent, of so many bytes, from all that the tracker names. Throws SwarmError where it comes slower than
   * `pace.brisk` in `pace.ms`, or the program fails; an error with the code ENOSPC; the reason of `signal`.
   */
  async fetch(
    bytes: number,
    pace: { readonly brisk: number; readonly ms: number },
    signal: AbortSignal
  ): Promise<void> {
    if ((await readLength(this.torrent)) !== bytes)
      throw new SwarmError('its torrent is of a file with another size')
    // aria2c asks a tracker over UDP with its DHT alone, which talks to everybody.
    if (!/^https?:/.test((await readAnnounce(this.torrent)) ?? ''))
      throw new SwarmError('its tracker is not asked by http')
    const over = new AbortController()
    const watch = this.#watch(bytes, pace, await sizeOnDisk(this.file), over)
    let told = ''
    try {
      await run(PROGRAM, this.#args(), {
        timeLimitMs: LONGEST_MS,
        signal: AbortSignal.any([signal, over.signal]),
        through: BOUND,
        // What it says is made by peers too: the last one is kept.
        onLine: line => {
          if (/error/i.test(line)) told = line
        }
      })
    } catch (error) {
      signal.throwIfAborted()
      // The checksum tells whether it is whole.
      if ((await sizeOnDisk(this.file)) === bytes) return
      if (over.signal.aborted) throw over.signal.reason
      if (error instanceof ProgramError && error.status === DISK_FULL)
        throw Object.assign(new Error(error.message), { code: 'ENOSPC' })
      throw new SwarmError(oneLine(`${(error as Error).message} ${told}`.trim(), WORDS))
    } finally {
      clearInterval(watch)
    }
  }

  /** Ends it when all has come, or when it comes too slowly; then the reason is why. `had`: what was there before. */
  #watch(
    bytes: number,
    { brisk, ms }: { readonly brisk: number; readonly ms: number },
    had: number,
    over: AbortController
  ): NodeJS.Timeout {
    // What is there is read first, and a tracker may not know of the torrent yet.
    let since = performance.now() + ms + (had / READ_BYTES) * 1000
    let before = had
    let fullSince: number | undefined
    const look = async () => {
      const now = await sizeOnDisk(this.file)
      // A piece that came damaged is fetched again meanwhile. Then a tracker may keep the program from its end.
      if (now === bytes) fullSince ??= performance.now()
      if (fullSince !== undefined && performance.now() - fullSince > END_MS) return over.abort()
      if (performance.now() - since < ms) return
      if (now - before < brisk)
        over.abort(
          new SwarmError(
            `${now - before} bytes came in ${ms / 1000} s, fewer than ${brisk}: look at /monitor/service/tracker and ` +
              '/monitor/service/seeder of the controller that has it, and whether its tracker and its seeder can be reached from here'
          )
        )
      since = performance.now()
      before = now
    }
    return setInterval(() => void look().catch(error => over.abort(error)), Math.min(LOOK_MS, ms))
  }

  /** Without allocation and cache the size on disk shows what has arrived. Pieces that are there are read and checked. */
  #args(): string[] {
    const own = ['no-conf', `dir=${this.directory}`, `stop-with-process=${process.pid}`, ...OPTIONS]
    return [...own.map(option => `--${option}`), this.torrent]
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
    for (const path of [part, ...this.#fetching.keys()]) sizes.set(path, await sizeOnDisk(path))
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

/** How many bytes of a file are there: one that comes by torrent has holes. 0 where there is none. */
async function sizeOnDisk(path: string): Promise<number> {
  const found = await unlessMissing(stat(path), undefined)
  return found ? Math.min(found.size, found.blocks * 512) : 0
}
