import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { oneLine } from '../../log.js'
import { locate, ProgramError, run } from '../../program/program.js'
import { readAnnounce, readLength } from '../torrent/torrent.js'
import { sizeOnDisk } from './room.js'

/** Nothing more comes by torrent; the message says why, '' where that is as it should be. */
export class SwarmError extends Error {}

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
export const canSwarm = async (): Promise<boolean> => (await locate(PROGRAM)) !== undefined

/** A directory for what comes by one torrent: what is in it is used by the next try, until `remove`. */
export class Swarm {
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
