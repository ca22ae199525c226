import { setTimeout as sleep } from 'node:timers/promises'
import type { ReplicationListener } from '../medium.js'
import type { LeaderEndpoint } from '../role.js'
import type { Client } from './client.js'
import { Follower } from './follower.js'
import type { Keys } from './keys.js'
import type { Leadership } from './leadership.js'
import type { AllRecords, StoredKeys } from './stored.js'

interface CandidateOptions {
  readonly client: Client
  readonly keys: Keys
  readonly leadership: Leadership
  readonly listener: ReplicationListener
  readonly records: AllRecords
  /** Bound of the catch-up after taking the lease, in ms. */
  readonly patienceMs: number
  /**
   * Called with the fencing token and the number of the last commit once this controller leads and has caught
   * up; the follower has ended by then.
   */
  readonly becameLeader: (revision: string, commits: number) => Promise<void>
  /** Called repeatedly while there is no leader and this controller is up to date. */
  readonly free: () => unknown
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** A controller that does not lead: follows the leader, and can take over when there is none. */
export class Candidate {
  readonly #follower: Follower

  constructor(private readonly o: CandidateOptions) {
    this.#follower = new Follower(o)
  }

  start(stored?: StoredKeys): void {
    this.#follower.start(stored)
  }

  /** The reason why the leader's commits do not arrive; '' if they do. */
  get problem(): string {
    return this.#follower.problem
  }

  get isFree(): boolean {
    return this.#follower.isFree
  }

  /** Describes the leader. */
  get following(): string {
    const { client, keys } = this.o
    const { holder, isFree } = this.#follower
    const who = isFree ? 'nobody for the moment, try again soon' : (holder?.who ?? 'another svcd')
    return `etcd at ${client.where}: what is below ${keys.prefix} is written by ${who}`
  }

  /** The leader's URL, with a signal that is aborted when its leadership ends; undefined if unknown. */
  get leader(): LeaderEndpoint | undefined {
    const { holder } = this.#follower
    return holder?.url ? { url: holder.url, token: holder.token, gone: holder.gone } : undefined
  }

  get revision(): number {
    return this.#follower.commits
  }

  get lagMs(): number {
    return this.#follower.lagMs
  }

  close(): Promise<void> {
    return this.#follower.close()
  }

  /** Becomes leader if there is none. */
  async take(): Promise<void> {
    const { leadership, patienceMs } = this.o
    // The leadership key is watched too: once it arrives, everything written before it has arrived.
    const revision = await leadership.take(made =>
      Promise.race([
        this.#follower.reached(made),
        sleep(patienceMs, undefined, { ref: false }).then(() => {
          throw new Error(`what was written before was not heard within ${patienceMs / 1000} s`)
        })
      ])
    )
    if (revision === undefined) return
    await this.#follower.close()
    await this.o.becameLeader(revision, this.revision)
  }
}
