import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { locate, ProgramError, run } from '../../program/program.js'
import { readAnnounce, readLength } from '../torrent/torrent.js'
import { sizeOnDisk } from './room.js'

/** Nothing more came by torrent; the message says why. */
export class SwarmError extends Error {}

const PROGRAM = 'aria2c'
/** Its status when the disk is full. */
const DISK_FULL = 9
/** Slow files are fetched by http long before. */
const LONGEST_MS = 24 * 3_600_000

/** Whether this machine has the program that fetches by torrent. */
export const canSwarm = async (): Promise<boolean> => (await locate(PROGRAM)) !== undefined

/** A directory for what comes by one torrent: what is in it is used by the next try, until `remove`. */
export class Swarm {
  readonly #directory: string

  constructor(directory: string) {
    this.#directory = directory
  }

  /** Where the torrent belongs. */
  get torrent(): string {
    return join(this.#directory, 'torrent')
  }

  /** Where the file comes. */
  get file(): string {
    return join(this.#directory, 'file')
  }

  async make(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
  }

  async remove(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true })
  }

  /**
   * Fetches the file of the torrent, of so many bytes, from all that the tracker names. Throws SwarmError where fewer than
   * `pace.bytes` come in `pace.ms`, or the program fails; an error with the code ENOSPC; the reason of `signal`.
   */
  async fetch(
    bytes: number,
    pace: { readonly bytes: number; readonly ms: number },
    signal: AbortSignal
  ): Promise<void> {
    if ((await readLength(this.torrent)) !== bytes)
      throw new SwarmError('its torrent is of a file with another size')
    const isUdp = (await readAnnounce(this.torrent))?.startsWith('udp:') === true
    const slow = new AbortController()
    let before = await sizeOnDisk(this.file)
    const look = async () => {
      const now = await sizeOnDisk(this.file)
      if (now - before < pace.bytes) slow.abort()
      before = now
    }
    const watch = setInterval(() => void look().catch(() => slow.abort()), pace.ms)
    try {
      await run(PROGRAM, this.#args(isUdp), {
        timeLimitMs: LONGEST_MS,
        signal: AbortSignal.any([signal, slow.signal]),
        // What it says is made by peers too, and is not kept.
        onLine: () => {}
      })
    } catch (error) {
      signal.throwIfAborted()
      if (slow.signal.aborted)
        throw new SwarmError(
          `fewer than ${pace.bytes} bytes came in ${pace.ms / 1000} s: look at /monitor/service/tracker and ` +
            '/monitor/service/seeder of the controller that has it, and whether its tracker and its seeder can be reached from here'
        )
      if (error instanceof ProgramError && error.status === DISK_FULL)
        throw Object.assign(new Error(error.message), { code: 'ENOSPC' })
      throw new SwarmError((error as Error).message)
    } finally {
      clearInterval(watch)
    }
  }

  /**
   * Without allocation and cache the size on disk shows what has arrived. Who dies leaves a list of pieces that is 10 s old.
   * aria2c asks a tracker over UDP only when its DHT is on; the torrents are private, and do not use it.
   */
  #args(isUdp: boolean): string[] {
    return [
      '--no-conf',
      `--dir=${this.#directory}`,
      '--index-out=1=file',
      '--allow-overwrite=true',
      '--auto-save-interval=10',
      '--file-allocation=none',
      '--disk-cache=0',
      '--seed-time=0',
      `--stop-with-process=${process.pid}`,
      '--bt-tracker-interval=30',
      '--bt-tracker-timeout=10',
      '--bt-tracker-connect-timeout=10',
      `--enable-dht=${isUdp}`,
      '--enable-dht6=false',
      `--dht-file-path=${join(this.#directory, 'dht')}`,
      '--bt-enable-lpd=false',
      '--enable-peer-exchange=false',
      '--summary-interval=0',
      '--show-console-readout=false',
      '--console-log-level=warn',
      this.torrent
    ]
  }
}
