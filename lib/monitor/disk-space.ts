import { statfs } from 'node:fs/promises'
import { Background } from '../background.js'
import type { Condition } from './health.js'

const lookMs = 10_000
/** On a small disk this share may be free instead: a small disk is not full because it is small. */
const leastShare = 0.05

/** How much of a disk of `bytes` should be free, where `[monitor] disk_free` says `leastBytes`. */
export const leastFree = (bytes: number, leastBytes: number) => Math.min(leastBytes, bytes * leastShare)

/** Whether there is room on the disks of some directories, looked at every 10 s (rules 6.3). */
export class DiskSpace {
  #condition: Condition = { ok: true, reason: '' }
  readonly #looking = new Background({ work: () => this.#look(), everyMs: lookMs })

  private constructor(
    readonly directories: readonly string[],
    readonly leastBytes: number
  ) {}

  /** Looks at the disks of the directories, and from then on every 10 s. Less than `leastBytes` free is a failure. */
  static async open(directories: readonly string[], leastBytes: number): Promise<DiskSpace> {
    const disks = new DiskSpace(directories, leastBytes)
    await disks.#looking.run()
    return disks
  }

  /** The condition at the last look. */
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

  /** What the disk of a directory lacks, in words that stay the same while it does; '' for nothing. */
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
