import { setTimeout as sleep } from 'node:timers/promises'
import type { Followed, Reached } from '../medium.js'
import type { Client } from './client.js'
import { Follower } from './follower.js'
import type { Keys } from './keys.js'
import type { AllRecords, StoredKeys } from './stored.js'
import type { Writer } from './writer.js'

interface StandbyOptions {
  readonly client: Client
  readonly keys: Keys
  readonly writer: Writer
  readonly followed: Followed
  readonly records: AllRecords
  /** How long the right to write is held before all is known that was written before, at most. */
  readonly patienceMs: number
  /**
   * Called with the revision of the right to write and the number of the last commit, when it is ours, all that was written before is told, and
   * nothing more will be told from here.
   */
  readonly promoted: (revision: string, commits: number) => Promise<void>
  /** Called again and again while nobody has the right to write, and nothing is missing here. */
  readonly free: () => unknown
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** Who does not write: follows who does, and can take the right to write when nobody has it. */
export class Standby {
  readonly #follower: Follower

  constructor(private readonly o: StandbyOptions) {
    this.#follower = new Follower(o)
  }

  /** Follows from what was read, otherwise reads it first. */
  start(stored?: StoredKeys): void {
    this.#follower.start(stored)
  }

  /** Why what is written is not heard, '' when it is. */
  get problem(): string {
    return this.#follower.problem
  }

  /** Whether nobody has the right to write, as far as is known. */
  get isFree(): boolean {
    return this.#follower.isFree
  }

  /** Says who writes. */
  get following(): string {
    const { client, keys } = this.o
    const { holder, isFree } = this.#follower
    const who = isFree ? 'nobody for the moment, try again soon' : (holder?.who ?? 'another svcd')
    return `etcd at ${client.where}: what is below ${keys.prefix} is written by ${who}`
  }

  /** Where who writes is reached, and a signal that is aborted when that one writes no more; undefined where that is not known. */
  get writer(): Reached | undefined {
    const { holder } = this.#follower
    return holder?.url ? { url: holder.url, right: holder.right, gone: holder.gone } : undefined
  }

  /** The number of the last commit that is known. */
  get revision(): number {
    return this.#follower.commits
  }

  /** How long ago it was last known that nothing is missing, in ms. */
  get lagMs(): number {
    return this.#follower.lagMs
  }

  close(): Promise<void> {
    return this.#follower.close()
  }

  /** Takes the right to write, if nobody has it. */
  async take(): Promise<void> {
    const { writer, patienceMs } = this.o
    // The key of the writer is one of those that are followed: what was written before it has been told by then.
    const revision = await writer.take(made =>
      Promise.race([
        this.#follower.reached(made),
        sleep(patienceMs, undefined, { ref: false }).then(() => {
          throw new Error(`what was written before was not heard within ${patienceMs / 1000} s`)
        })
      ])
    )
    if (revision === undefined) return
    await this.#follower.close()
    await this.o.promoted(revision, this.revision)
  }
}
