import { chmod, mkdir, readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Background } from '../../base/background.js'
import { firstOf, type Log } from '../../base/log.js'
import { replaceAmongOthers } from '../../disk/file.js'
import { scrape } from './scrape.js'
import { chooseSeeder, type Kept, keepSeeding, Ledger } from './seeding.js'
import { readInfoHash, type Seeder, type SeederSettings, type Torrent } from './torrent.js'

export interface DistributionOptions {
  /** `[torrent]` of the ini. */
  readonly torrent: SeederSettings & TrackerSettings
  /** The files directory. */
  readonly files: string
  /** The state directory; `seeding.json` in it lists what the seeder got from svcd. */
  readonly state: string
  readonly log: Log
  /** Runs the tracker's reload command to its end. */
  readonly run: (words: readonly string[], signal: AbortSignal) => Promise<unknown>
  /** Between two looks while all is well; default 1 min. */
  readonly intervalMs?: number
}

interface Condition {
  readonly ok: boolean
  readonly reason: string
}

/** A torrent that the seeder offers and of which the tracker knows no seeder; times of `performance.now`. */
interface Unheard {
  readonly name: string
  readonly since: number
  /** Time of the last attempt to repair it. */
  readonly tried: number
}

const INTERVAL_MS = 60_000
/** The pause after a change, and after a failure; it doubles each time. */
const SOON_MS = 1000
/** A seeder may take so long to reach the tracker before svcd acts, and after that. */
const HEARD_MS = 5000
/** Problems in a condition. */
const TOLD = 5

const off: Condition = { ok: false, reason: 'torrent is off: [torrent] tracker is empty' }
const notYet: Condition = { ok: false, reason: 'not looked at yet' }

/**
 * Keeps the tracker's whitelist and the seeder in step with the torrents in force (rules 9.10): at once after
 * a change, every minute while all is well, with growing pauses while something is wrong.
 */
export class Distribution {
  /** Whether the tracker answers and has our whitelist, as of the last look. */
  tracker: Condition
  /** Whether the seeder answers, and the tracker knows one of every torrent, as of the last look. */
  seeder: Condition
  readonly #tracker: Tracker
  readonly #seeder: Seeder | undefined
  readonly #ledger: Ledger
  readonly #infoHashes = new Map<string, string>()
  readonly #background: Background
  #wanted: readonly string[] | undefined
  /** By info hash. */
  #unheard: ReadonlyMap<string, Unheard> = new Map()
  /** Failed looks in a row. */
  #unsettled = 0
  #pauseMs: number | undefined

  constructor(private readonly o: DistributionOptions) {
    this.#tracker = new Tracker(o.torrent, o.run)
    this.#seeder = chooseSeeder(o.torrent, o.files)
    this.#ledger = new Ledger(join(o.state, 'seeding.json'))
    this.tracker = this.#isOff ? off : notYet
    this.seeder = this.tracker
    this.#background = new Background({
      work: signal => this.#run(signal),
      everyMs: () => this.#pauseMs,
      onFailure: reason => o.log.warn(`torrent seeder: ${reason}`)
    })
  }

  /** The conditions for the health page, without a service that the ini turns off. */
  get conditions(): Record<string, readonly (() => Condition)[]> {
    if (this.#isOff) return {}
    const tracker = [() => this.tracker]
    return this.#seeder ? { tracker, seeder: [() => this.seeder] } : { tracker }
  }

  /** Sets the torrents in force, names in the files directory. The background does the work. */
  wanted(torrents: readonly string[]): void {
    const wanted = [...new Set(torrents)].sort()
    if (wanted.join('/') === this.#wanted?.join('/')) return
    this.#wanted = wanted
    this.#unsettled = 0
    this.#background.wake()
  }

  /** Ends what is under way. Seeder and tracker go on with what they have. */
  close(): Promise<void> {
    return this.#background.close()
  }

  get #isOff(): boolean {
    return this.o.torrent.tracker === ''
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { intervalMs = INTERVAL_MS } = this.o
    this.#pauseMs = Math.min(SOON_MS * 2 ** this.#unsettled++, intervalMs)
    if (this.#isOff) {
      await this.#withdraw(signal)
      this.#pauseMs = undefined
    } else if (await this.#look(this.#wanted ?? [], signal)) {
      this.#unsettled = 0
      this.#pauseMs = intervalMs
    }
  }

  /** Takes svcd's torrents from the seeder, as torrent is off. Throws an Error that says what is left. */
  async #withdraw(signal: AbortSignal): Promise<void> {
    if (!this.#seeder || (await this.#ledger.read()).size === 0) return
    const { problems } = await keepSeeding(this.#seeder, this.#ledger, this.o.files, new Set(), [], signal)
    if (problems.length > 0) throw new Error(summary(problems))
  }

  /** Whether all was in order, and nothing had to be done. */
  async #look(names: readonly string[], signal: AbortSignal): Promise<boolean> {
    const { torrents, problems } = await this.#read(names)
    const infoHashes = torrents.map(({ infoHash }) => infoHash)
    // The tracker comes first: a seeder that it refuses would not ask again soon.
    const known = await this.#part('tracker', signal, async () => {
      await this.#tracker.allow(infoHashes, signal)
      return { result: await this.#tracker.seeders(infoHashes, signal), problems: [] }
    })
    const kept = await this.#part('seeder', signal, async () => {
      const result = await this.#keep(new Set(names), torrents, signal)
      const isUnheard = ({ infoHash }: Torrent) => known?.get(infoHash) === 0 && result.seeding.has(infoHash)
      for (const infoHash of this.#noteUnheard(torrents.filter(isUnheard))) {
        // The tracker may have missed the last reading.
        this.#tracker.isRead = false
        // Not while nodes are fetching it, as they could lose the seeder.
        if (result.idle.has(infoHash)) await this.#seeder?.announce?.(infoHash, signal)
      }
      return { result, problems: [...problems, ...result.problems, ...this.#unheardProblems()] }
    })
    return kept?.changed === false && this.#unheard.size === 0 && this.tracker.ok && this.seeder.ok
  }

  /** Makes the seeder offer all torrents. Where the ini names no seeder, somebody else must offer them. */
  async #keep(names: ReadonlySet<string>, torrents: readonly Torrent[], signal: AbortSignal): Promise<Kept> {
    if (this.#seeder) return keepSeeding(this.#seeder, this.#ledger, this.o.files, names, torrents, signal)
    const seeding = new Set(torrents.map(({ infoHash }) => infoHash))
    return { changed: false, seeding, idle: seeding, problems: [] }
  }

  /** Notes the torrents that the tracker does not know. Returns those to act on now. */
  #noteUnheard(torrents: readonly Torrent[]): string[] {
    const now = performance.now()
    const due: string[] = []
    const entries = torrents.map(({ name, infoHash }): [string, Unheard] => {
      const before = this.#unheard.get(infoHash) ?? { name, since: now, tried: now }
      if (now - before.tried < HEARD_MS) return [infoHash, before]
      due.push(infoHash)
      return [infoHash, { ...before, tried: now }]
    })
    this.#unheard = new Map(entries)
    return due
  }

  #unheardProblems(): string[] {
    const now = performance.now()
    return [...this.#unheard.values()]
      .filter(({ since }) => now - since >= HEARD_MS)
      .map(({ name }) => `${name}: the tracker knows no seeder of it`)
  }

  /** Reads the torrents of these names. An unreadable one is a problem, and stays with the seeder. */
  async #read(names: readonly string[]) {
    const torrents: Torrent[] = []
    const problems: string[] = []
    for (const name of names)
      try {
        if (name !== basename(name)) throw new Error(`${name} is no name of a file`)
        const infoHash = this.#infoHashes.get(name) ?? (await readInfoHash(join(this.o.files, name)))
        this.#infoHashes.set(name, infoHash)
        torrents.push({ name, infoHash })
      } catch (error) {
        problems.push((error as Error).message)
      }
    for (const name of this.#infoHashes.keys()) if (!names.includes(name)) this.#infoHashes.delete(name)
    return { torrents, problems }
  }

  /** Does one part of a look and notes the outcome; returns undefined after a failure. */
  async #part<T>(
    part: 'tracker' | 'seeder',
    signal: AbortSignal,
    work: () => Promise<{ result: T; problems: readonly string[] }>
  ): Promise<T | undefined> {
    try {
      const { result, problems } = await work()
      this.#is(part, problems)
      return result
    } catch (error) {
      if (!signal.aborted) this.#is(part, [(error as Error).message])
      return undefined
    }
  }

  #is(part: 'tracker' | 'seeder', problems: readonly string[]): void {
    const reason = summary(problems)
    const before = this[part].reason
    this[part] = { ok: reason === '', reason }
    if (reason === before) return
    if (reason !== '') this.o.log.warn(`torrent ${part}: ${reason}`)
    else this.o.log.info(`torrent ${part}: well`)
  }
}

/** Returns one line for some problems, '' for none. */
const summary = (problems: readonly string[]): string =>
  firstOf(problems, TOLD, '; ') + (problems.length > TOLD ? ' problems' : '')

/** The keys of `[torrent]` that lead to the tracker. */
interface TrackerSettings {
  /** Announce URL; where it is empty, torrent is off. */
  readonly tracker: string
  /** File of the info hashes that the tracker may serve; where it is empty, the tracker serves all. */
  readonly whitelist: string
  /** The command that makes it read the whitelist again; empty where it does so by itself. */
  readonly tracker_reload: readonly string[]
}

/** The cluster's tracker, a service of the system. */
class Tracker {
  /** Whether the tracker has read the file; unknown at the start and after a failure. */
  isRead = false

  constructor(
    readonly settings: TrackerSettings,
    readonly run: DistributionOptions['run']
  ) {}

  /** Writes the whitelist, and makes the tracker read it. Throws an Error that names the ini key. */
  async allow(infoHashes: readonly string[], signal: AbortSignal): Promise<void> {
    const { whitelist, tracker_reload: reload } = this.settings
    if (whitelist === '') return
    const lines = [...new Set(infoHashes)].sort().map(infoHash => `${infoHash}\n`)
    const text = lines.join('')
    try {
      if (text !== (await readFile(whitelist, 'utf8').catch(() => undefined))) {
        this.isRead = false
        // The tracker runs as another user, and our umask may be strict.
        const directory = dirname(whitelist)
        if (await mkdir(directory, { recursive: true })) await chmod(directory, 0o755)
        await replaceAmongOthers(whitelist, text, 0o644)
      }
    } catch (error) {
      throw new Error(`[torrent] whitelist: ${(error as Error).message}`)
    }
    if (this.isRead || reload.length === 0) return
    try {
      await this.run(reload, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw new Error(`[torrent] tracker_reload: ${(error as Error).message}`)
    }
    this.isRead = true
  }

  /** Returns the seeders of each torrent, by info hash. Throws an Error that names the ini key. */
  async seeders(infoHashes: readonly string[], signal: AbortSignal): Promise<Map<string, number>> {
    try {
      return await scrape(this.settings.tracker, infoHashes, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw new Error(`tracker ${this.settings.tracker} ([torrent] tracker): ${(error as Error).message}`)
    }
  }
}
