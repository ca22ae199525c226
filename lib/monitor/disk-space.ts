import { statfs } from 'node:fs/promises'
import { Background } from '../base/background.js'
import type { Condition } from './health.js'

const lookMs = 10_000
/** Used instead of `disk_free` on a small disk, which would otherwise always count as full. */
const leastShare = 0.05

/** Returns how many bytes of a disk should be free; `leastBytes` is `[monitor] disk_free`. */
export const leastFree = (bytes: number, leastBytes: number) => Math.min(leastBytes, bytes * leastShare)

/** Checks every 10 s whether the disks of some directories have free space (rules 6.3). */
export class DiskSpace {
  #condition: Condition = { ok: true, reason: '' }
  readonly #looking = new Background({ work: () => this.#look(), everyMs: lookMs })

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
