import { link, readdir, rename, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import type { Mutex } from '../../concurrency.js'
import type { Config } from '../../config/types.js'
import { syncFile } from '../../disk/copy.js'
import { syncDirectory } from '../../disk/directory.js'
import { exists, unlessMissing } from '../../disk/missing.js'
import { type Log, oneLine } from '../../log.js'
import type { Model } from '../../model/model.js'
import type { Change } from '../../model/view.js'
import { leastFree } from '../../monitor/disk-space.js'
import type { Condition } from '../../monitor/health.js'
import { hashFile } from '../packer/in-worker.js'
import { isServed, servedMode } from '../publish.js'
import { filesOfPack } from '../sweep.js'
import {
  type Asking,
  checksumAt,
  download,
  type Patience,
  SlowError,
  type Source,
  SourceError
} from './download.js'
import { type NamedFile, namedFiles } from './named.js'
import { OwnedFiles } from './owned.js'

/** What the fetching of files uses. */
export interface CopiesOptions {
  readonly config: Pick<Config, 'controller' | 'image' | 'monitor' | 'paths'>
  readonly model: Pick<Model, 'view'>
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed. */
  readonly files: Mutex
  /** The other controllers, in the order in which they are asked. */
  readonly sources: () => readonly Source[]
  readonly asking: Asking
  /** Called when a file has arrived. */
  readonly arrived: () => void
}

/** A file as it has to be. */
interface Wanted {
  readonly name: string
  readonly bytes: number
  readonly sha256: string
}

/** Why a file is not here. */
interface Problem {
  readonly reason: string
  /** No controller that can be asked has it: it may come later, or be a name that somebody has mistyped. */
  readonly isNowhere: boolean
}

const AT_ONCE = 2
/** Of larger files one at a time is fetched: the other place is for those that take a moment. */
const SMALL = 16 * 1024 * 1024
const SOON_MS = 100
/** The other controllers are known a moment after a start. */
const FIRST_MS = 1000
/** Between two looks; after one that left something out, from the first of these to the second. */
const LOOK_MS = 60_000
const RETRY_MS = { first: 1000, longest: 30_000 }
/** Who gave another file than the one asked for is not asked for it again for so long, twice as long each time: a pack is gigabytes. */
const WRONG_MS = { first: 60_000, longest: 3_600_000 }
/** What was made here is stored within seconds, or never. */
const KEPT_MS = 600_000
/** So many problems stand in the condition. */
const MOST_TOLD = 5
/** So many reasons are logged for a file: what another controller answers is a part of them. */
const MOST_REASONS = 20
/** The hidden name of a file that is fetched begins so. */
const PART = '.svcd-copy-'

const partOf = ({ name, sha256 }: Wanted) => `${PART}${sha256.slice(0, 16)}-${name}`

/**
 * Fetches the files that objects name and this controller lacks from the other controllers that share the objects, and
 * removes those that svcd made or fetched when no object has named them for `[image] grace` (rules 11.19). A file has its
 * name when it is whole, checked and durable. Until then it is hidden; what has come of it is used by the next try, also
 * after a crash, because the hidden name holds the checksum that the whole will have.
 */
export class Copies {
  readonly #o: CopiesOptions
  readonly #directory: string
  readonly #owned: OwnedFiles
  readonly #background: Background
  readonly #problems = new Map<string, Problem>()
  /** What was logged, by file: each reason once. */
  readonly #told = new Map<string, Set<string>>()
  /** Controller and file → until when it is not asked, and how often it gave another file. */
  readonly #wrong = new Map<string, { readonly until: number; readonly times: number }>()
  /** Owned files that no object names → since when. */
  readonly #unnamed = new Map<string, number>()
  /** Parts that are fetched now → bytes that each will have. */
  readonly #fetching = new Map<string, number>()
  readonly #asking: CopiesOptions['asking']
  /** Files that were made for an object that may come → until when. */
  readonly #kept = new Map<string, number>()
  #underWay = 0
  /** The one file of more than SMALL bytes that is fetched now. */
  #large: string | undefined
  /** Files that were found to be as large, and wait for their turn. */
  readonly #knownLarge = new Set<string>()
  /** How many looks in a row have left a file out. */
  #failures = 0

  private constructor(options: CopiesOptions, owned: OwnedFiles) {
    this.#o = options
    this.#directory = options.config.paths.files
    this.#owned = owned
    const isThere = ({ url }: Source) => options.sources().some(source => source.url === url)
    this.#asking = { ...options.asking, isThere }
    this.#background = new Background({
      work: signal => this.#look(signal),
      everyMs: () => this.#pauseMs(),
      failed: reason => options.log.warn(`files of images that are not here cannot be looked for: ${reason}`)
    })
    this.#background.wake(FIRST_MS)
  }

  static async open(options: CopiesOptions): Promise<Copies> {
    const { config, log } = options
    const { files, state } = config.paths
    return new Copies(
      options,
      await OwnedFiles.open(join(state, 'copies.json'), files, message => log.warn(message))
    )
  }

  /** Follows committed changes. */
  follow(changes: readonly Change[]): void {
    if (!changes.some(({ type }) => ['osimage', 'osimagetag', 'pack'].includes(type))) return
    this.#failures = 0
    this.#background.wake(SOON_MS)
  }

  /**
   * Notes files that were made here for an object that is about to name them. They stay for a while, whether it comes or not. `files` has
   * to be held.
   */
  async keep(names: readonly string[]): Promise<void> {
    await this.#owned.add(names)
    for (const name of names) this.#kept.set(name, this.#o.ticks() + KEPT_MS)
  }

  /** Looks now at what is missing. Never throws. */
  run(): Promise<void> {
    return this.#background.run().catch(() => undefined)
  }

  get condition(): Condition {
    const { problem } = this.#background
    if (problem !== '')
      return { ok: false, reason: `files of images are not looked for: ${oneLine(problem)}` }
    const failed = [...this.#problems.values()].filter(({ isNowhere }) => !isNowhere)
    if (failed.length > 0) return { ok: false, reason: summary(failed) }
    const nowhere = [...this.#problems.values()]
    const fetching =
      this.#underWay === 0 ? [] : [`files of images are fetched from other controllers: ${this.#underWay}`]
    return { ok: true, reason: [...fetching, ...(nowhere.length === 0 ? [] : [summary(nowhere)])].join('; ') }
  }

  /** Whether no controller that answered has this file, which is missing here. */
  isNowhere(name: string): boolean {
    return this.#problems.get(name)?.isNowhere === true
  }

  /** As in Controllers. What was found out before does not count: the file may have been put there since. */
  async whoHas(name: string, signal: AbortSignal): Promise<string | undefined> {
    for (const source of this.#o.sources())
      try {
        await checksumAt(source, name, this.#asking, signal)
        return `controller ${source.name} has it`
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof SourceError) || error.kind !== 'lacks') return (error as Error).message
      }
    return undefined
  }

  /** Ends what is under way; the next start goes on with it. */
  close(): Promise<void> {
    return this.#background.close()
  }

  async #look(signal: AbortSignal): Promise<void> {
    await this.#removeUnnamed()
    await this.#tidy()
    /** When each file may be tried in this look. */
    const due = new Map<string, number>()
    const running = new Set<Promise<void>>()
    const attempt = async (file: NamedFile) => {
      const isHeld = (await this.#fetch(file, signal)) === 'held'
      if (this.#large === file.name) this.#large = undefined
      // A large file may take hours: what failed is not left until it is there.
      due.set(file.name, isHeld ? 0 : this.#o.ticks() + RETRY_MS.longest)
    }
    for (;;) {
      while (running.size < AT_ONCE && !signal.aborted) {
        const next = await this.#next(due)
        if (!next) break
        const fetching = attempt(next).finally(() => {
          running.delete(fetching)
          this.#underWay = running.size
        })
        running.add(fetching)
        this.#underWay = running.size
      }
      if (running.size === 0) break
      const pause = new AbortController()
      const pausing = sleep(RETRY_MS.first, undefined, { signal: pause.signal }).catch(() => undefined)
      await Promise.race([...running, pausing]).finally(() => pause.abort())
    }
    this.#failures = this.#problems.size === 0 ? 0 : this.#failures + 1
  }

  #pauseMs(): number {
    const { config, ticks } = this.#o
    const { first, longest } = RETRY_MS
    if (this.#failures > 0) return Math.min(first * 2 ** (this.#failures - 1), longest)
    const due = [...this.#unnamed.values()].map(since => since + config.image.grace - ticks())
    return Math.max(SOON_MS, Math.min(LOOK_MS, ...due))
  }

  /** A file that is missing and may be tried now; it is not due again then. */
  async #next(due: Map<string, number>): Promise<NamedFile | undefined> {
    const there = new Set(await readdir(this.#directory))
    const now = this.#o.ticks()
    const isLarge = ({ name, pack }: NamedFile) => this.#knownLarge.has(name) || (pack?.bytes ?? 0) > SMALL
    const found = namedFiles(this.#o.model.view).find(
      file =>
        !there.has(file.name) &&
        (due.get(file.name) ?? 0) <= now &&
        (this.#large === undefined || !isLarge(file))
    )
    if (!found) return undefined
    due.set(found.name, Number.POSITIVE_INFINITY)
    if (isLarge(found)) this.#large = found.name
    return found
  }

  /** Whether the place for large files is this one's. */
  #takesLarge(name: string): boolean {
    this.#knownLarge.add(name)
    this.#large ??= name
    return this.#large === name
  }

  /** Forgets problems that are gone, and removes the parts of files that nobody waits for. */
  async #tidy(): Promise<void> {
    const all = await readdir(this.#directory)
    const there = new Set(all)
    const missing = new Set(
      namedFiles(this.#o.model.view).flatMap(({ name }) => (there.has(name) ? [] : [name]))
    )
    for (const name of [...this.#problems.keys(), ...this.#told.keys()])
      if (!missing.has(name)) {
        this.#problems.delete(name)
        this.#told.delete(name)
      }
    for (const name of this.#knownLarge) if (!missing.has(name)) this.#knownLarge.delete(name)
    // For a while it is remembered how often: it may do so again.
    for (const [key, { until }] of this.#wrong)
      if (until + WRONG_MS.longest <= this.#o.ticks()) this.#wrong.delete(key)
    for (const part of all) {
      const [, name = ''] = /^\.svcd-copy-[\da-f]{16}-(.+)$/.exec(part) ?? []
      if (part.startsWith(PART) && !missing.has(name)) await rm(join(this.#directory, part), { force: true })
    }
  }

  /** Fetches a file from the controllers, the next one where one fails or is slow. `held`: another large file comes first. */
  async #fetch(file: NamedFile, signal: AbortSignal): Promise<'held' | undefined> {
    const { log } = this.#o
    const { name } = file
    let failures: Error[]
    let slow: { readonly source: Source; readonly bytes: number }[]
    do {
      const sources = this.#o.sources()
      failures = []
      slow = []
      for (const [source, patience] of turns(sources, slow)) {
        const came = await this.#fetchFrom(source, file, patience, signal).catch(error => error as Error)
        if (came === 'held') return came
        if (came === undefined) {
          // It is here, and the other one still has something else.
          for (const failure of failures)
            if (failure instanceof SourceError && failure.kind === 'wrong')
              log.warn(`${name}: ${failure.message}`)
          this.#problems.delete(name)
          this.#failures = 0
          this.#o.arrived()
          return undefined
        }
        if (signal.aborted) return undefined
        if (came instanceof SlowError) {
          slow.push({ source, bytes: came.bytes })
          if (patience === 'turn') break
          continue
        }
        failures.push(came)
        // Another controller would not help where this one cannot take the file.
        if (!(came instanceof SourceError)) {
          slow = []
          break
        }
      }
    } while (slow.length > 0)
    const reasons = failures.map(({ message }) => message)
    const why = reasons.length === 0 ? 'there is no other controller to fetch it from' : reasons.join('; ')
    const isNowhere = failures.every(error => error instanceof SourceError && error.kind === 'lacks')
    const wayOut = isNowhere ? `: put it into ${this.#directory} of any controller, or pack the image` : ''
    this.#problems.set(name, { reason: `${this.#sentenceOf(file)}: ${why}${wayOut}`, isNowhere })
    this.#tell(file, `${why}${wayOut}`)
    return undefined
  }

  /** Each reason is logged once for a file, until the file is there. */
  #tell(file: NamedFile, why: string): void {
    const told = this.#told.get(file.name) ?? new Set()
    this.#told.set(file.name, told)
    if (told.has(why) || told.size >= MOST_REASONS) return
    told.add(why)
    this.#o.log.warn(`${this.#sentenceOf(file)}: ${why}`)
  }

  #sentenceOf({ name, by }: NamedFile): string {
    return `the file ${name}, which ${by} names, is not on controller ${this.#o.config.controller.name}`
  }

  /** `held` as in `#fetch`. Throws SourceError, and Error for what is wrong on this side. */
  async #fetchFrom(
    source: Source,
    { name, pack }: NamedFile,
    patience: Patience,
    signal: AbortSignal
  ): Promise<'held' | undefined> {
    const { bytes, sha256 } = pack ?? (await checksumAt(source, name, this.#asking, signal))
    const wanted = { name, bytes, sha256 }
    if (bytes > SMALL && !this.#takesLarge(name)) return 'held'
    const key = `${source.url} ${sha256}`
    const { until = 0, times = 0 } = this.#wrong.get(key) ?? {}
    const wrong = () =>
      new SourceError(
        'wrong',
        `what controller ${source.name} (${source.url}) gives is another file, by its checksum or its size; it is asked ` +
          'for it again in a minute, then later and later, every hour at last: put the right file there, or pack the image again'
      )
    if (until > this.#o.ticks()) throw wrong()
    const part = join(this.#directory, partOf(wanted))
    const isRight = () => this.#isFetched(source, wanted, part, patience, signal)
    // A bit may have changed on the way; what was there before may be of a power cut, or of another controller: once more, from the begin.
    if (!(await isRight()) && !(await isRight())) {
      const ms = Math.min(WRONG_MS.first * 2 ** times, WRONG_MS.longest)
      this.#wrong.set(key, { until: this.#o.ticks() + ms, times: times + 1 })
      throw wrong()
    }
    this.#wrong.delete(key)
    await this.#place(part, name)
    this.#o.log.info(`${name} (${bytes} bytes) was fetched from controller ${source.name} (${source.url})`)
    return undefined
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
      await this.#download(source, wanted, part, patience, signal)
    } catch (error) {
      if (error instanceof SourceError && error.kind === 'wrong') return false
      throw error
    }
    const { sha256, bytes } = await hashFile(part, signal)
    if (sha256 === wanted.sha256 && bytes === wanted.bytes) return true
    await rm(part, { force: true })
    return false
  }

  async #download(
    source: Source,
    wanted: Wanted,
    part: string,
    patience: Patience,
    signal: AbortSignal
  ): Promise<void> {
    try {
      await this.#checkRoom(wanted, part)
      await download(source, wanted, part, this.#asking, signal, patience)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'ENOSPC' && code !== 'EDQUOT') throw error
      // Others need the room as well.
      await rm(part, { force: true })
      throw this.#noRoom(wanted)
    } finally {
      this.#fetching.delete(part)
    }
  }

  async #checkRoom({ name, bytes }: Wanted, part: string): Promise<void> {
    const { bsize, blocks, bavail } = await statfs(this.#directory)
    const sizes = new Map<string, number>()
    for (const path of [part, ...this.#fetching.keys()])
      sizes.set(path, (await unlessMissing(stat(path), undefined))?.size ?? 0)
    // From here on nobody else is asked: of two that begin together, one is noted first.
    let needed = bytes - (sizes.get(part) ?? 0)
    for (const [other, whole] of this.#fetching) needed += whole - (sizes.get(other) ?? 0)
    const kept = leastFree(blocks * bsize, this.#o.config.monitor.disk_free)
    if (needed > bavail * bsize - kept) throw this.#noRoom({ name, bytes })
    this.#fetching.set(part, bytes)
  }

  #noRoom({ bytes }: Pick<Wanted, 'name' | 'bytes'>): Error {
    return new Error(
      `the disk of ${this.#directory} has no room for its ${bytes} bytes beside what [monitor] disk_free keeps and other files that are fetched need: make room; svcd tries again`
    )
  }

  /** Gives a whole file its name, unless something has it by now. */
  async #place(part: string, name: string): Promise<void> {
    const directory = this.#directory
    await syncFile(part, await servedMode(directory))
    await this.#o.files.run(async () => {
      // Before it has the name: a crash must not make it somebody else's.
      await this.#owned.add([name], part)
      await nameNew(part, join(directory, name))
      await rm(part, { force: true })
      await syncDirectory(directory)
    })
  }

  /** Removes what svcd made or fetched and no object has named for `[image] grace`. */
  async #removeUnnamed(): Promise<void> {
    const { model, config, ticks, log, files } = this.#o
    await files.run(async () => {
      const { view } = model
      const all = await readdir(this.#directory)
      const packs = view.names('pack').flatMap(name => view.get('pack', name) ?? [])
      const ofPacks = new Set(packs.flatMap(pack => filesOfPack(pack, all)))
      // What svcd has packed here is its own too: the one that writes by now removes the record of a pack, and not our files.
      const bytes = new Map(packs.map(pack => [pack.name, pack.bytes]))
      await this.#owned.find(ofPacks, bytes)
      const due: string[] = []
      const owned = new Set(this.#owned.names)
      for (const name of this.#unnamed.keys()) if (!owned.has(name)) this.#unnamed.delete(name)
      for (const name of owned) {
        if ((this.#kept.get(name) ?? 0) < ticks()) this.#kept.delete(name)
        if (ofPacks.has(name) || isServed(view.index, name) || this.#kept.has(name)) {
          this.#unnamed.delete(name)
          continue
        }
        const since = this.#unnamed.get(name) ?? ticks()
        this.#unnamed.set(name, since)
        if (ticks() - since >= config.image.grace) due.push(name)
      }
      if (due.length === 0) return
      const removed = await this.#owned.remove(due)
      await syncDirectory(this.#directory)
      if (removed.length > 0) log.info(`no OS image uses them any more: ${removed.join(', ')} removed`)
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

function summary(problems: readonly Problem[]): string {
  const told = problems.slice(0, MOST_TOLD).map(({ reason }) => oneLine(reason))
  const rest = problems.length - told.length
  return `${told.join('; ')}${rest > 0 ? `; and ${rest} more` : ''}`
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
