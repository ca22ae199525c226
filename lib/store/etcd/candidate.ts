import { setTimeout as sleep } from 'node:timers/promises'
import type { ReplicationListener } from '../medium.js'
import type { LeaderEndpoint } from '../role.js'
import type { Client } from './client.js'
import { Follower } from './follower.js'
import type { Keys } from './keys.js'
import type { Leadership } from './leadership.js'
import type { EtcdRecords } from './records.js'
import type { StoredKeys } from './stored.js'

interface CandidateOptions {
  readonly client: Client
  readonly keys: Keys
  readonly leadership: Leadership
  readonly listener: ReplicationListener
  readonly records: EtcdRecords
  /** Bound of the catch-up after taking the lease, in ms. */
  readonly patienceMs: number
  /**
   * Called with the fencing token and the number of the last commit once this controller leads and has caught
   * up; the follower has ended by then.
   */
  readonly becameLeader: (revision: string, commits: number) => Promise<void>
  /** Called repeatedly while there is no leader and this controller is up to date. */
  readonly onLeaderless: () => unknown
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

  get isLeaderless(): boolean {
    return this.#follower.isLeaderless
  }

  /** Describes the leader. */
  get leaderText(): string {
    const { client, keys } = this.o
    const { leader, isLeaderless } = this.#follower
    const who = isLeaderless ? 'nobody for the moment, try again soon' : (leader?.who ?? 'another svcd')
    return `etcd at ${client.endpointsText}: what is below ${keys.prefix} is written by ${who}`
  }

  /** The leader's URL, with a signal that is aborted when its leadership ends; undefined if unknown. */
  get leader(): LeaderEndpoint | undefined {
    const { leader } = this.#follower
    return leader?.url ? { url: leader.url, token: leader.token, gone: leader.gone } : undefined
  }

  get lastCommit(): number {
    return this.#follower.lastCommit
  }

  get lagMs(): number {
    return this.#follower.lagMs
  }

  close(): Promise<void> {
    return this.#follower.close()
  }

  /** Becomes leader if there is none. */
  async takeOver(): Promise<void> {
    const { leadership, patienceMs } = this.o
    // The leadership key is watched too: once it arrives, everything written before it has arrived.
    const revision = await leadership.campaign(made =>
      Promise.race([
        this.#follower.waitForRevision(made),
        sleep(patienceMs, undefined, { ref: false }).then(() => {
          throw new Error(`what was written before was not heard within ${patienceMs / 1000} s`)
        })
      ])
    )
    if (revision === undefined) return
    await this.#follower.close()
    await this.o.becameLeader(revision, this.lastCommit)
  }
}
