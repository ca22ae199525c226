import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../base/background.js'
import { runSliced } from '../../base/concurrency.js'
import { getOrAdd } from '../../base/lists.js'
import { oneLine } from '../../base/log.js'
import { LoadError, reasonOf, summaryOf } from '../errors.js'
import { decodeUtf8 } from '../json.js'
import type { ReplicationListener, Write } from '../medium.js'
import type { LeaderEndpoint } from '../role.js'
import { NoRevisionError, NoRoomError, UnclearError } from './client.js'
import { type Etcd, type Keys, objectIn } from './keys.js'
import {
  get,
  isCreatedAt,
  isModifiedAt,
  type Pair,
  remove,
  transact,
  type WatchedTransaction,
  watchTransactions
} from './kv.js'
import { grantLease, HeartbeatMonitor, type Leader, leaderIn, revokeLease } from './leadership.js'
import type { EtcdRecords } from './records.js'
import { commitsIn, parseIntent, StoredKeys, textOf, versionOf } from './stored.js'

/** Turns changes of keys into commits; a large change counts from its intent on, with its staged writes. */
class CommitAssembler {
  /** Staged writes without an intent so far, by the id of their change. */
  readonly #staged = new Map<string, Map<string, Write>>()

  /** `staged`: the keys below `Keys.staged` at the start, with their texts. */
  constructor(
    private readonly keys: Keys,
    staged: Iterable<readonly [string, Buffer]>
  ) {
    for (const [key, value] of staged) this.#stage(key, value)
  }

  /** Returns the writes of a transaction, at most one per object. Throws Error for unknown kinds of keys. */
  writesOf(moment: WatchedTransaction): Write[] {
    const { objects, staged, intent } = this.keys
    const writes: Write[] = []
    for (const { key, value } of moment.keys)
      if (key.startsWith(objects))
        writes.push({ ...objectIn(key, objects.length), text: value && decodeUtf8(value) })
      else if (key.startsWith(staged)) this.#stage(key, value)
      else if (key === intent && value !== undefined) writes.push(...this.#committed(value))
    return writes
  }

  #stage(key: string, value: Buffer | undefined): void {
    const id = this.keys.changeIdOf(key)
    const writes = getOrAdd(this.#staged, id, () => new Map<string, Write>())
    if (value === undefined) writes.delete(key)
    else writes.set(key, { ...objectIn(key, this.keys.stagedPrefix(id).length), text: textOf(key, value) })
    if (writes.size === 0) this.#staged.delete(id)
  }

  #committed(value: Buffer): Iterable<Write> {
    const { id, count } = parseIntent(value)
    const writes = this.#staged.get(id)
    const size = writes?.size ?? 0
    if (size !== count) throw new Error(`${this.keys.intent}: ${size} of its ${count} writes are known`)
    return writes?.values() ?? []
  }
}

interface FollowerOptions extends Etcd {
  readonly listener: ReplicationListener
  readonly records: Pick<EtcdRecords, 'loading' | 'applyRemote'>
  /** Called repeatedly while there is no leader and this controller is up to date. */
  readonly onLeaderless?: () => unknown
}

const PAUSE_MS = { first: 100, longest: 10_000 }
/** Interval at which the follower checks whether it is up to date. */
const CHECK_MS = 500
const REQUEST_LIMIT_MS = 2000
/** Time to live of the probe lease, which is revoked at once. */
const PROBE_SECONDS = 5
/** A commit that the watch has not delivered for this long was lost with its connection. */
const SILENT_MS = 2000
/** A healthy member delivers an awaited revision within this time. */
const DELIVERY_MS = 500
const SILENT = 'the watch tells nothing more'

/** etcd was restored, or another one answers: its history differs, so that everything has to be reread. */
class OtherHistoryError extends Error {}

/** Replicates the commits of others: each whole, in order and once, despite lost connections and members. */
export class Follower {
  #replica: CommitAssembler | undefined
  /** Everything up to this revision was delivered. */
  #revision = '0'
  /** The value of the head at that revision. */
  #head: string | undefined
  /** `versionOf` of some keys at that revision: head, leadership, and the key delivered last. */
  #versions: ReadonlyMap<string, string> = new Map()
  /** The last time at which nothing was missing; on the clock of `performance`. */
  #freshMs = performance.now()
  #behindSinceMs: number | undefined
  /** A reload or change is being delivered, which may take long. */
  #isDelivering = false
  #problem = ''
  /** Create revision of the leadership key: '' without a leader, undefined while unknown. */
  #leaderToken: string | undefined
  #leader: Leader | undefined
  #leadershipEnded = new AbortController()
  #heartbeats = new HeartbeatMonitor()
  /** etcd had no room at the last request: it then takes no heartbeats and grants no leases. */
  #isFull = false
  readonly #closing = new AbortController()
  #watch: AbortController | undefined
  #running: Promise<void> | undefined
  #waiting: { readonly revision: bigint; done(): void }[] = []
  readonly #checking = new Background({ work: () => this.#checkProgress(), everyMs: CHECK_MS })

  constructor(private readonly o: FollowerOptions) {}

  /** Starts from `stored`, or reads it first; no change in between is missed. */
  start(stored?: StoredKeys): void {
    if (stored) this.#begin(stored)
    this.#running = this.#run()
    this.#checking.wake()
  }

  /** The number of the last commit known here. */
  get lastCommit(): number {
    return commitsIn(this.#head)
  }

  /** The leader, with a signal that is aborted when its leadership ends; undefined if unknown. */
  get leader(): (Leader & Pick<LeaderEndpoint, 'token' | 'gone'>) | undefined {
    if (!this.#leader || this.#leaderToken === undefined) return undefined
    return { ...this.#leader, token: this.#leaderToken, gone: this.#leadershipEnded.signal }
  }

  /** Whether there is no leader, as far as known. */
  get isLeaderless(): boolean {
    return this.#leaderToken === ''
  }

  /** Time since this controller was last up to date, in ms. */
  get lagMs(): number {
    return performance.now() - this.#freshMs
  }

  get problem(): string {
    return this.#problem || this.#checking.problem || (this.#replica ? '' : 'what is stored is being read')
  }

  /**
   * Resolves once everything up to `revision` was delivered, of etcd's current history: a restored etcd
   * reaches a revision twice. Restarts a slow watch, as its member may be gone. Throws OtherHistoryError, and
   * the errors of a request to etcd.
   */
  async waitForRevision(revision: string): Promise<void> {
    const wanted = BigInt(revision)
    if (BigInt(this.#revision) < wanted)
      await new Promise<void>(resolve => {
        const anew = setTimeout(
          () => this.#isDelivering || this.#watch?.abort(new Error(SILENT)),
          DELIVERY_MS
        )
        const done = () => {
          clearTimeout(anew)
          resolve()
        }
        this.#waiting.push({ revision: wanted, done })
      })
    await this.#readHeadAndLeader()
    if (!this.#replica) throw new Error(this.problem)
  }

  /** Finishes a delivery under way. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#leadershipEnded.abort()
    this.#watch?.abort()
    await this.#running
    await this.#checking.close()
  }

  #begin(stored: StoredKeys): void {
    this.#replica = new CommitAssembler(this.o.keys, stored.staged)
    this.#head = stored.head
    this.#versions = stored.versions
    this.#advance(stored.revision)
  }

  /** Returns head and leadership. Throws OtherHistoryError if etcd's past is not what is known here. */
  async #readHeadAndLeader(): Promise<readonly (Pair | undefined)[]> {
    const { client, keys } = this.o
    const revision = this.#revision
    const known = [...(this.#replica ? this.#versions : [])]
    const now = [get(keys.head), get(keys.leader)]
    const then = known.map(([key]) => get(key, revision))
    const strange = (what: string) =>
      new OtherHistoryError(
        `etcd at ${client.endpointsText}: ${what} at revision ${revision}, of which this svcd knows: it ` +
          'was restored or compacted, or answers for another one; everything is read anew'
      )
    const { found } = await transact(client, [], [...now, ...then]).catch(error => {
      throw error instanceof NoRevisionError ? strange('it does not know what was') : error
    })
    const other = known.find(([, was], i) => versionOf(found[now.length + i]) !== was)
    if (other) throw strange(`${oneLine(other[0], 300)} was another one`)
    return found
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing
    let pauseMs = PAUSE_MS.first
    while (!signal.aborted) {
      this.#watch = new AbortController()
      const before = this.#revision
      try {
        await this.#follow(this.#watch.signal)
      } catch (error) {
        if (signal.aborted) return
        // Changes that cannot be delivered one by one are read as a whole.
        const isOther = error instanceof OtherHistoryError
        const isUntold = isOther || !(error instanceof UnclearError || this.#watch.signal.aborted)
        if (isUntold) this.#replica = undefined
        const reason = error instanceof LoadError ? summaryOf(error.problems) : reasonOf(error)
        if (this.#problem === '' || isOther)
          this.o.log('warn', `what other controllers change is not heard, and is asked for again: ${reason}`)
        this.#problem = reason
        // Backs off: two clusters behind the endpoints would cause endless reloads.
        pauseMs =
          isOther || (isUntold && this.#revision === before)
            ? Math.min(2 * pauseMs, PAUSE_MS.longest)
            : PAUSE_MS.first
        await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      }
    }
  }

  async #follow(signal: AbortSignal): Promise<never> {
    const { client, keys, listener, records } = this.o
    if (!this.#replica) {
      await this.#delivering(async () => {
        const stored = await StoredKeys.read(client, keys, signal)
        await listener.reload(stored)
        await runSliced(records.loading(stored.records))
        this.#begin(stored)
      })
    }
    await this.#readHeadAndLeader()
    const from = String(BigInt(this.#revision) + 1n)
    const moments = watchTransactions(client, keys.prefix, from, signal)
    for (;;) {
      const { value: moment } = await moments.next()
      if (moment.keys.some(({ key, value }) => key === keys.head && value === undefined))
        throw new OtherHistoryError(
          `etcd at ${client.endpointsText}: ${keys.head} was removed; everything is read anew`
        )
      const writes = (this.#replica as CommitAssembler).writesOf(moment)
      if (writes.length > 0) await this.#delivering(() => listener.applyRemote(writes))
      for (const { key, value } of moment.keys) records.applyRemote(key, value)
      this.#noteDelivered(moment)
      // Another history may have been found meanwhile.
      signal.throwIfAborted()
    }
  }

  async #delivering(work: () => Promise<void>): Promise<void> {
    this.#isDelivering = true
    try {
      await work()
    } finally {
      this.#isDelivering = false
    }
  }

  #noteDelivered({ revision: modified, keys: told }: WatchedTransaction): void {
    const { head, leader } = this.o.keys
    const known = new Map([head, leader].map(key => [key, this.#versions.get(key) ?? '']))
    for (const [i, { key, value }] of told.entries()) {
      if (i === 0 || key === head || key === leader) known.set(key, versionOf(value && { modified, value }))
      if (key === head) this.#head = value?.toString()
    }
    this.#versions = known
    this.#advance(modified)
  }

  #advance(revision: string): void {
    this.#revision = revision
    const reached = BigInt(revision)
    this.#waiting = this.#waiting.filter(({ revision, done }) => revision > reached || void done())
  }

  #setLeader(token: string, text: string | undefined): void {
    if (token === this.#leaderToken) return
    this.#leaderToken = token
    this.#leader = text === undefined ? undefined : leaderIn(text)
    this.#leadershipEnded.abort()
    this.#leadershipEnded = new AbortController()
    // Each forwarded request adds a listener.
    setMaxListeners(0, this.#leadershipEnded.signal)
  }

  /** Ends the leadership of a leader without heartbeats, unless one reaches etcd before this transaction. */
  async #endDeadLeadership(leader: Pair, head: Pair | undefined): Promise<void> {
    const { client, keys, log } = this.o
    const wasFull = this.#isFull
    const lease = await grantLease(client, PROBE_SECONDS, REQUEST_LIMIT_MS).catch(error => {
      if (error instanceof NoRoomError) return undefined
      throw error
    })
    this.#isFull = lease === undefined
    if (lease === undefined) return
    try {
      if (wasFull) {
        // Heartbeats are possible again from now on.
        this.#heartbeats = new HeartbeatMonitor()
        return
      }
      const isStill = [
        isModifiedAt(leader.key, leader.modified),
        head ? isModifiedAt(head.key, head.modified) : isCreatedAt(keys.head, '0')
      ]
      const { succeeded } = await transact(client, isStill, [remove(leader.key)])
      if (!succeeded) return
    } finally {
      void revokeLease(client, lease, REQUEST_LIMIT_MS)
    }
    log('warn', `${this.#leader?.who} led, and sent no heartbeat: its leadership is ended`)
    this.#checking.wake()
  }

  /** Learns who leads, ends a dead leadership, and detects a watch that no longer delivers. */
  async #checkProgress(): Promise<void> {
    const asked = performance.now()
    const replica = this.#replica
    const [head, leader] = await this.#readHeadAndLeader().catch(error => {
      if (error instanceof OtherHistoryError && replica === this.#replica) {
        this.#replica = undefined
        this.#watch?.abort(error)
      }
      throw error
    })
    this.#setLeader(leader?.created ?? '', leader?.value.toString())
    const isSilent = this.#heartbeats.isSilent(
      // A commit counts as a heartbeat.
      leader && `${leader.modified} ${head?.modified}`,
      this.#leader?.ttlMs,
      asked,
      performance.now()
    )
    if (leader && isSilent) await this.#endDeadLeadership(leader, head)
    const isTold = ({ modified }: Pair) => BigInt(modified) <= BigInt(this.#revision)
    if (this.#replica && [head, leader].every(pair => !pair || isTold(pair))) {
      this.#freshMs = asked
      this.#behindSinceMs = undefined
      if (this.#problem !== '') this.o.log('info', 'what other controllers change is heard again')
      this.#problem = ''
      if (this.isLeaderless) this.o.onLeaderless?.()
      return
    }
    if (this.#isDelivering) {
      this.#behindSinceMs = undefined
      return
    }
    this.#behindSinceMs ??= performance.now()
    if (performance.now() - this.#behindSinceMs < SILENT_MS) return
    this.#behindSinceMs = undefined
    this.#watch?.abort(new Error(SILENT))
  }
}
