import { chmod, mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { replaceFile } from '../../disk/replace.js'
import { run } from '../../program/program.js'
import { scrape } from './scrape.js'

/** The keys of `[torrent]` that lead to the tracker. */
export interface TrackerSettings {
  /** Announce URL; where it is empty, torrent is off. */
  readonly tracker: string
  /** File of the info hashes that the tracker may serve; where it is empty, the tracker serves all. */
  readonly whitelist: string
  /** The words of the command that makes it read the whitelist again; none where it does so by itself. */
  readonly tracker_reload: readonly string[]
}

const RELOAD_LIMIT_MS = 30_000

/** Runs a command of the ini to its end. */
export type RunCommand = (words: readonly string[], signal: AbortSignal) => Promise<unknown>

/** The cluster's tracker, a service of the system. */
export class Tracker {
  /** Whether the tracker has read the file. At the start and after a failure that is not known. */
  #isRead = false

  /** `runCommand` runs the reload command. */
  constructor(
    readonly settings: TrackerSettings,
    readonly runCommand: RunCommand = ([program = '', ...words], signal) =>
      run(program, words, { timeLimitMs: RELOAD_LIMIT_MS, signal })
  ) {}

  /**
   * Writes these info hashes to the whitelist, sorted, one per line, and makes the tracker read it if it has not.
   * @throws Error that names the ini key.
   */
  async allow(infoHashes: readonly string[], signal: AbortSignal): Promise<void> {
    const { whitelist, tracker_reload: reload } = this.settings
    if (whitelist === '') return
    const text = [...new Set(infoHashes)]
      .sort()
      .map(infoHash => `${infoHash}\n`)
      .join('')
    try {
      if (text !== (await readFile(whitelist, 'utf8').catch(() => undefined))) {
        this.#isRead = false
        // The tracker runs as another user, and our umask may be strict.
        const directory = dirname(whitelist)
        if (await mkdir(directory, { recursive: true })) await chmod(directory, 0o755)
        await replaceFile(whitelist, text, 0o644)
      }
    } catch (error) {
      throw new Error(`[torrent] whitelist: ${(error as Error).message}`)
    }
    if (this.#isRead || reload.length === 0) return
    try {
      await this.runCommand(reload, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw new Error(`[torrent] tracker_reload: ${(error as Error).message}`)
    }
    this.#isRead = true
  }

  /** The tracker may have missed the last reading, so that the next `allow` makes it read again. */
  forgetRead(): void {
    this.#isRead = false
  }

  /**
   * How many seeders it knows of each torrent, by info hash.
   * @throws Error that names the ini key when it does not answer.
   */
  async seeders(infoHashes: readonly string[], signal: AbortSignal): Promise<Map<string, number>> {
    try {
      return await scrape(this.settings.tracker, infoHashes, signal)
    } catch (error) {
      signal.throwIfAborted()
      throw new Error(`tracker ${this.settings.tracker} ([torrent] tracker): ${(error as Error).message}`)
    }
  }
}
