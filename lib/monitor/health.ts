import { statfs } from 'node:fs/promises'
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import { Background } from '../base/background.js'
import type { Jobs } from '../jobs/jobs.js'

/** The condition of one part of the daemon. */
export interface Condition {
  readonly ok: boolean
  /** Why it is not well; if it is well, a note for the admin, '' for none. */
  readonly reason: string
}

/** State of a service; `since` is ISO 8601, UTC. */
export interface ServiceState {
  readonly status: 'ok' | 'failed'
  /** '' when well, without a note. */
  readonly reason: string
  readonly since: string
}

const lookMs = 5_000

/** Keeps the state of each service and since when it has it (rules 6.3), also while nobody asks. */
export class Health {
  readonly #last = new Map<string, ServiceState>()
  readonly #timer: NodeJS.Timeout
  /** Called with the name of a service whose state changed; must not throw. */
  onChange: (name: string) => void = () => undefined

  /** A service is well when all its parts are, and absent while no part has a condition. `every`: ms. */
  constructor(
    readonly services: Readonly<Record<string, readonly (() => Condition | undefined)[]>>,
    readonly now: () => number,
    every = lookMs
  ) {
    this.all()
    this.#timer = setInterval(() => this.all(), every).unref()
  }

  close(): void {
    clearInterval(this.#timer)
  }

  all(): Record<string, ServiceState> {
    return Object.fromEntries(
      Object.keys(this.services).flatMap(name => {
        const state = this.of(name)
        return state ? [[name, state]] : []
      })
    )
  }

  /** Returns the state of a service; undefined for an unknown name. */
  of(name: string): ServiceState | undefined {
    if (!Object.hasOwn(this.services, name)) return undefined
    const all = (this.services[name] ?? []).flatMap(part => part() ?? [])
    if (all.length === 0) return undefined
    const bad = all.filter(({ ok }) => !ok)
    const status = bad.length === 0 ? 'ok' : 'failed'
    const told = (bad.length === 0 ? all : bad).map(part => part.reason)
    const reason = told.filter(text => text !== '').join('; ')
    const last = this.#last.get(name)
    if (last?.status === status && last.reason === reason) return last
    // A failure whose reason changes is still the same failure.
    const since = last?.status === status ? last.since : new Date(this.now()).toISOString()
    const state: ServiceState = { status, reason, since }
    this.#last.set(name, state)
    this.onChange(name)
    return state
  }
}

/** Whether at most `most` requests are queued (rules 6.3). */
export function queueCondition(jobs: Pick<Jobs, 'records'>, most: number): Condition {
  const waiting = jobs.records().filter(({ state }) => state === 'queued').length
  const ok = waiting <= most
  return { ok, reason: ok ? '' : `more than ${most} requests wait to run` }
}

const windowMs = 10_000
const resolutionMs = 20

/** Checks the mean delay of the event loop over ten seconds: one long turn is no failure. */
export class LoopDelay {
  readonly #histogram: IntervalHistogram = monitorEventLoopDelay({ resolution: resolutionMs })
  readonly #timer: NodeJS.Timeout
  #meanMs = 0

  /** `mostMs`: longest mean delay. `window`: period of the mean. Both in milliseconds. */
  constructor(
    readonly mostMs: number,
    window = windowMs
  ) {
    this.#histogram.enable()
    this.#timer = setInterval(() => {
      const { mean } = this.#histogram
      this.#meanMs = Number.isNaN(mean) ? 0 : mean / 1e6 - resolutionMs
      this.#histogram.reset()
    }, window).unref()
  }

  get meanMs(): number {
    return this.#meanMs
  }

  get condition(): Condition {
    const ok = this.#meanMs <= this.mostMs
    return { ok, reason: ok ? '' : `the event loop is more than ${this.mostMs} ms late on average` }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#histogram.disable()
  }
}

const diskLookMs = 10_000
/** Used instead of `disk_free` on a small disk, which would otherwise always count as full. */
const leastShare = 0.05

/** Returns how many bytes of a disk should be free; `leastBytes` is `[monitor] disk_free`. */
export const leastFree = (bytes: number, leastBytes: number) => Math.min(leastBytes, bytes * leastShare)

/** Checks every 10 s whether the disks of some directories have free space (rules 6.3). */
export class DiskSpace {
  #condition: Condition = { ok: true, reason: '' }
  readonly #looking = new Background({ work: () => this.#look(), everyMs: diskLookMs })

  private constructor(
    readonly directories: readonly string[],
    readonly leastBytes: number
  ) {}

  /** Checks the disks now, and then every 10 s. Less than `leastBytes` free is a failure. */
  static async open(directories: readonly string[], leastBytes: number): Promise<DiskSpace> {
    const disks = new DiskSpace(directories, leastBytes)
    await disks.#looking.run()
    return disks
  }

  /** Result of the last check. */
  get condition(): Condition {
    return this.#condition
  }

  close(): Promise<void> {
    return this.#looking.close()
  }

  async #look(): Promise<void> {
    const reasons = await Promise.all(this.directories.map(directory => this.#lack(directory)))
    const reason = [...new Set(reasons)].filter(text => text !== '').join('; ')
    this.#condition = { ok: reason === '', reason }
  }

  /** Returns what a disk lacks, '' for nothing. The text has no changing numbers: it stays the same. */
  async #lack(directory: string): Promise<string> {
    try {
      const { bsize, blocks, bavail, ffree, files } = await statfs(directory)
      const least = leastFree(blocks * bsize, this.leastBytes)
      if (bavail * bsize < least) return `the disk of ${directory} has less than ${sizeText(least)} free`
      return files > 0 && ffree === 0 ? `the disk of ${directory} has no room for another file` : ''
    } catch (error) {
      return `the disk of ${directory} cannot be looked at: ${(error as Error).message}`
    }
  }
}

const sizeText = (bytes: number) =>
  bytes >= 1024 ** 2 ? `${Math.round(bytes / 1024 ** 2)} MiB` : `${Math.round(bytes / 1024)} KiB`
