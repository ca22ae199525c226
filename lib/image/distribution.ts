import { basename, join } from 'node:path'
import type { Log } from '../log.js'
import type { Condition } from '../monitor/health.js'
import { chooseSeeder } from './torrent/choose-seeder.js'
import { Ledger } from './torrent/ledger.js'
import type { Seeder, SeederSettings } from './torrent/seeder.js'
import { type Kept, keepSeeding } from './torrent/seeding.js'
import { readInfoHash, type Torrent } from './torrent/torrent.js'
import { Tracker, type TrackerSettings } from './torrent/tracker.js'
import { Unheard } from './torrent/unheard.js'

export interface DistributionOptions {
  /** `[torrent]` of the ini. */
  readonly torrent: SeederSettings & TrackerSettings
  /** The files directory. */
  readonly files: string
  /** The state directory: what was given to the seeder is written down in `seeding.json` there. */
  readonly state: string
  readonly log: Log
  /** Between two looks while all is well; default 1 min. */
  readonly intervalMs?: number
}

const INTERVAL_MS = 60_000
/** After a change, and when something is wrong; then twice as long each time. */
const SOON_MS = 1000
/** So many problems are told at once. */
const TOLD = 5

const off: Condition = { ok: false, reason: 'torrent is off: [torrent] tracker is empty' }
const notYet: Condition = { ok: false, reason: 'not looked at yet' }

/**
 * Keeps the tracker's whitelist and the seeder in step with the torrents in force (rules 9.10). Intents in
 * the background from the first `wanted` on: at once after a change, every minute while all is well (a seeder that was
 * restarted gets its torrents back, a tracker that was hears of them), and with growing pauses while something is wrong.
 */
export class Distribution {
  readonly #o: DistributionOptions
  readonly #tracker: Tracker
  readonly #seeder: Seeder | undefined
  readonly #ledger: Ledger
  readonly #unheard = new Unheard()
  readonly #closing = new AbortController()
  readonly #infoHashes = new Map<string, string>()
  readonly #conditions: { tracker: Condition; seeder: Condition }
  #wanted: readonly string[] = []
  #wake = () => {}
  #work: Promise<void> | undefined

  constructor(options: DistributionOptions) {
    this.#o = options
    this.#tracker = new Tracker(options.torrent)
    this.#seeder = chooseSeeder(options.torrent, options.files)
    this.#ledger = new Ledger(join(options.state, 'seeding.json'))
    const first = this.#isOff ? off : notYet
    this.#conditions = { tracker: first, seeder: first }
  }

  /** Whether the tracker answers and has our whitelist, as of the last look. */
  get tracker(): Condition {
    return this.#conditions.tracker
  }

  /** Whether the seeder answers and the tracker knows it as one of every torrent that is wanted, as of the last look. */
  get seeder(): Condition {
    return this.#conditions.seeder
  }

  /** The torrents in force: names of files in the files directory. Cheap; the work is done in the background. */
  wanted(torrents: readonly string[]): void {
    const wanted = [...new Set(torrents)].sort()
    const isSame = wanted.join('/') === this.#wanted.join('/')
    if (this.#isOff) this.#work ??= this.#withdraw()
    if (this.#isOff || this.#closing.signal.aborted || (this.#work && isSame)) return
    this.#wanted = wanted
    this.#work ??= this.#run()
    this.#wake()
  }

  /** Ends what is under way; seeder and tracker go on with what they have. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#wake()
    await this.#work
  }

  get #isOff(): boolean {
    return this.#o.torrent.tracker === ''
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing
    const most = this.#o.intervalMs ?? INTERVAL_MS
    let pause = SOON_MS
    while (!signal.aborted) {
      const wanted = this.#wanted
      const settled = await this.#look(wanted)
      if (this.#wanted === wanted) await this.#wait(settled ? most : Math.min(pause, most))
      pause = settled || this.#wanted !== wanted ? SOON_MS : pause * 2
    }
  }

  /** Torrent was turned off: takes from the seeder what svcd gave to it. */
  async #withdraw(): Promise<void> {
    const { signal } = this.#closing
    const { files, log, intervalMs = INTERVAL_MS } = this.#o
    let told = ''
    for (let pause = SOON_MS; !signal.aborted && this.#seeder; pause *= 2) {
      let problem = ''
      try {
        if ((await this.#ledger.read()).size === 0) return
        const { problems } = await keepSeeding(this.#seeder, this.#ledger, files, new Set(), [], signal)
        problem = problems.slice(0, TOLD).join('; ')
      } catch (error) {
        problem = (error as Error).message
      }
      if (problem !== '' && problem !== told && !signal.aborted) log.warn(`torrent seeder: ${problem}`)
      told = problem
      if (problem !== '') await this.#wait(Math.min(pause, intervalMs))
    }
  }

  /** Until that time has passed, or something is to be done. */
  async #wait(ms: number): Promise<void> {
    if (this.#closing.signal.aborted) return
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** One round; true when all was as it should be and nothing had to be done. */
  async #look(names: readonly string[]): Promise<boolean> {
    const { signal } = this.#closing
    const { torrents, problems } = await this.#read(names)
    const infoHashes = torrents.map(({ infoHash }) => infoHash)
    // Before the seeder: one that the tracker refuses is in no hurry to ask again.
    const known = await this.#part('tracker', async () => {
      await this.#tracker.allow(infoHashes, signal)
      return { result: await this.#tracker.seeders(infoHashes, signal), problems: [] }
    })
    const kept = await this.#part('seeder', async () => {
      const result = await this.#keep(new Set(names), torrents)
      const due = this.#unheard.update(
        torrents.filter(({ infoHash }) => known?.get(infoHash) === 0 && result.seeding.has(infoHash))
      )
      for (const { infoHash } of due) {
        this.#tracker.forgetRead()
        // Not while nodes are fetching: they could lose it.
        if (result.idle.has(infoHash)) await this.#seeder?.announce(infoHash, signal)
      }
      return { result, problems: [...problems, ...result.problems, ...this.#unheard.problems] }
    })
    return kept?.changed === false && this.#unheard.isEmpty && this.tracker.ok && this.seeder.ok
  }

  /** Where the ini names no seeder, somebody else is to offer everything. */
  async #keep(names: ReadonlySet<string>, torrents: readonly Torrent[]): Promise<Kept> {
    const { signal } = this.#closing
    if (this.#seeder) return keepSeeding(this.#seeder, this.#ledger, this.#o.files, names, torrents, signal)
    const seeding = new Set(torrents.map(({ infoHash }) => infoHash))
    return { changed: false, seeding, idle: seeding, problems: [] }
  }

  /** The torrents of that name; one that cannot be read is a problem and stays with the seeder as it is. */
  async #read(names: readonly string[]) {
    const torrents: Torrent[] = []
    const problems: string[] = []
    for (const name of names)
      try {
        if (name !== basename(name)) throw new Error(`${name} is no name of a file`)
        const infoHash = this.#infoHashes.get(name) ?? (await readInfoHash(join(this.#o.files, name)))
        this.#infoHashes.set(name, infoHash)
        torrents.push({ name, infoHash })
      } catch (error) {
        problems.push((error as Error).message)
      }
    for (const name of this.#infoHashes.keys()) if (!names.includes(name)) this.#infoHashes.delete(name)
    return { torrents, problems }
  }

  /** Does one part of a look and takes down how it went; undefined when it failed. */
  async #part<T>(
    part: 'tracker' | 'seeder',
    work: () => Promise<{ result: T; problems: readonly string[] }>
  ): Promise<T | undefined> {
    try {
      const { result, problems } = await work()
      this.#is(part, problems)
      return result
    } catch (error) {
      if (!this.#closing.signal.aborted) this.#is(part, [(error as Error).message])
      return undefined
    }
  }

  #is(part: 'tracker' | 'seeder', problems: readonly string[]): void {
    const rest = problems.length - TOLD
    const told = problems.slice(0, TOLD).join('; ') + (rest > 0 ? `; and ${rest} more problems` : '')
    const { reason } = this.#conditions[part]
    this.#conditions[part] = { ok: told === '', reason: told }
    if (told === reason) return
    if (told !== '') this.#o.log.warn(`torrent ${part}: ${told}`)
    else this.#o.log.info(`torrent ${part}: well`)
  }
}
