import { readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../base/background.js'
import { firstOf, oneLine } from '../../base/log.js'
import type { Config } from '../../config/types.js'
import type { Model } from '../../model/model.js'
import type { Change } from '../../model/stored.js'
import type { PackDoc } from '../../model/types/osimage.js'
import type { Condition } from '../../monitor/health.js'
import { filesOf } from '../publish.js'
import { checksumAt, type Source, SourceError } from './download.js'
import { Fetcher, type FetcherOptions, SMALL } from './fetcher.js'
import { type NamedFile, namedFiles } from './named.js'

export interface CopiesOptions extends FetcherOptions {
  readonly model: Pick<Model, 'view'>
  readonly config: Pick<Config, 'controller' | 'monitor' | 'paths'>
  readonly arrived: () => void
}

interface Problem {
  readonly reason: string
  /** No reachable controller has it: it may come later, or an admin mistyped the name. */
  readonly isNowhere: boolean
  /** The logged reasons: each is logged once, until the file is there. */
  readonly logged: Set<string>
}

const AT_ONCE = 2
const SOON_MS = 100
/** The other controllers are known a moment after a start. */
const FIRST_MS = 1000
/** Between two looks; after a failure the pause grows from the first of RETRY_MS to the longest. */
const LOOK_MS = 60_000
const RETRY_MS = { first: 1000, longest: 30_000 }
/** Problems in the condition. */
const MOST_TOLD = 5
/** Reasons logged per file: answers of other controllers are part of them. */
const MOST_REASONS = 20

/** Fetches the files that objects name and this controller lacks (rules 11.19); parts survive a crash. */
export class Copies {
  readonly #directory: string
  readonly #fetcher: Fetcher
  readonly #background: Background
  readonly #problems = new Map<string, Problem>()
  readonly #asking: CopiesOptions['asking']
  /** The fetches that are under way. */
  readonly #running = new Set<Promise<void>>()
  /** The file of more than SMALL bytes that is fetched now. */
  #large: string | undefined
  /** Waiting files of which another controller said that they are larger. */
  readonly #knownLarge = new Set<string>()
  /** Looks in a row in which a file failed. */
  #failures = 0

  constructor(private readonly options: CopiesOptions) {
    this.#directory = options.config.paths.files
    const isThere = ({ url }: Source) => options.sources().some(source => source.url === url)
    this.#asking = { ...options.asking, isThere }
    this.#fetcher = new Fetcher({ ...options, asking: this.#asking })
    this.#background = new Background({
      work: signal => this.#look(signal),
      everyMs: () => this.#pauseMs(),
      onFailure: reason =>
        options.log.warn(`files of images that are not here cannot be looked for: ${reason}`)
    })
    this.#background.wake(FIRST_MS)
  }

  follow(changes: readonly Change[]): void {
    if (!changes.some(({ type }) => ['osimage', 'osimagetag', 'pack'].includes(type))) return
    this.#failures = 0
    this.#background.wake(SOON_MS)
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
    const fetching =
      this.#running.size === 0
        ? ''
        : `files of images are fetched from other controllers: ${this.#running.size}`
    const nowhere = summary([...this.#problems.values()])
    return { ok: true, reason: [fetching, nowhere].filter(text => text !== '').join('; ') }
  }

  /** Whether this file is missing here and on each controller that answered. */
  isNowhere(name: string): boolean {
    return this.#problems.get(name)?.isNowhere === true
  }

  /** As in Controllers. Always asks: the file may be new there. */
  async whoHas(name: string, signal: AbortSignal): Promise<string | undefined> {
    for (const source of this.options.sources())
      try {
        await checksumAt({ source, asking: this.#asking, signal }, name)
        return `controller ${source.name} has it`
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof SourceError) || error.kind !== 'lacks') return (error as Error).message
      }
    return undefined
  }

  async having(pack: PackDoc, signal: AbortSignal): Promise<string[]> {
    const asked = this.options.sources().map(async source => {
      const ask = { source, asking: this.#asking, signal }
      const sums = filesOf(pack).map(file => checksumAt(ask, file))
      const [packed] = await Promise.all(sums).catch(() => [])
      return packed?.sha256 === pack.sha256 ? source.name : []
    })
    const found = (await Promise.all(asked)).flat()
    signal.throwIfAborted()
    return found
  }

  /** Ends all fetches; the next start continues them. */
  close(): Promise<void> {
    return this.#background.close()
  }

  async #look(signal: AbortSignal): Promise<void> {
    await this.#tidy()
    /** The time from which each file may be tried in this look. */
    const due = new Map<string, number>()
    const running = this.#running
    const attempt = async (file: NamedFile) => {
      const isHeld = await this.#fetch(file, signal)
      if (this.#large === file.name) this.#large = undefined
      // A large file may take hours: failed files are tried again meanwhile.
      due.set(file.name, isHeld ? 0 : this.options.ticks() + RETRY_MS.longest)
    }
    for (;;) {
      while (running.size < AT_ONCE && !signal.aborted) {
        const next = await this.#next(due)
        if (!next) break
        const fetching = attempt(next).finally(() => running.delete(fetching))
        running.add(fetching)
      }
      if (running.size === 0) break
      const pause = new AbortController()
      const pausing = sleep(RETRY_MS.first, undefined, { signal: pause.signal }).catch(() => undefined)
      await Promise.race([...running, pausing]).finally(() => pause.abort())
    }
    this.#failures = this.#problems.size === 0 ? 0 : this.#failures + 1
  }

  #pauseMs(): number {
    const { first, longest } = RETRY_MS
    return this.#failures > 0 ? Math.min(first * 2 ** (this.#failures - 1), longest) : LOOK_MS
  }

  /** Takes a missing file that may be tried now. */
  async #next(due: Map<string, number>): Promise<NamedFile | undefined> {
    const there = new Set(await readdir(this.#directory))
    const now = this.options.ticks()
    const isLarge = ({ name, pack }: NamedFile) => this.#knownLarge.has(name) || (pack?.bytes ?? 0) > SMALL
    const isDue = ({ name }: NamedFile) => !there.has(name) && (due.get(name) ?? 0) <= now
    const mayCome = (file: NamedFile) => this.#large === undefined || !isLarge(file)
    const found = namedFiles(this.options.model.view).find(file => isDue(file) && mayCome(file))
    if (!found) return undefined
    due.set(found.name, Number.POSITIVE_INFINITY)
    if (isLarge(found)) this.#large = found.name
    return found
  }

  /** Forgets solved problems, and removes parts of files that nothing names any more. */
  async #tidy(): Promise<void> {
    const all = await readdir(this.#directory)
    const there = new Set(all)
    const named = namedFiles(this.options.model.view)
    const missing = new Set(named.flatMap(({ name }) => (there.has(name) ? [] : name)))
    for (const name of this.#problems.keys()) if (!missing.has(name)) this.#problems.delete(name)
    for (const name of this.#knownLarge) if (!missing.has(name)) this.#knownLarge.delete(name)
    await this.#fetcher.tidy(missing, all)
  }

  /** Returns whether another large file comes first. */
  async #fetch(file: NamedFile, signal: AbortSignal): Promise<boolean> {
    const { name } = file
    const takesLarge = () => {
      this.#knownLarge.add(name)
      this.#large ??= name
      return this.#large === name
    }
    const came = await this.#fetcher.fetch(file, takesLarge, signal)
    if (came === 'held' || came === 'ended') return came === 'held'
    if (came === 'here') {
      this.#problems.delete(name)
      this.#failures = 0
      this.options.arrived()
      return false
    }
    const reasons = came.map(({ message }) => message)
    const why = reasons.length === 0 ? 'there is no other controller to fetch it from' : reasons.join('; ')
    const isNowhere = came.every(error => error instanceof SourceError && error.kind === 'lacks')
    const wayOut = isNowhere ? `: put it into ${this.#directory} of any controller, or pack the image` : ''
    const { name: own } = this.options.config.controller
    const reason = `the file ${name}, which ${file.by} names, is not on controller ${own}: ${why}${wayOut}`
    const { logged = new Set<string>() } = this.#problems.get(name) ?? {}
    this.#problems.set(name, { reason, isNowhere, logged })
    if (logged.has(reason) || logged.size >= MOST_REASONS) return false
    logged.add(reason)
    this.options.log.warn(reason)
    return false
  }
}

const summary = (problems: readonly Problem[]): string => {
  const reasons = problems.map(({ reason }, i) => (i < MOST_TOLD ? oneLine(reason) : reason))
  return firstOf(reasons, MOST_TOLD, '; ')
}
