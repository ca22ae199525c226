import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../base/background.js'
import { isObject } from '../../base/json.js'
import { oneLine } from '../../base/log.js'
import { LeaderExistsError } from '../errors.js'
import { type Client, NoRoomError, RefusedError, UnclearError } from './client.js'
import { get, hasValue, isCreatedAt, isSince, put, transact } from './kv.js'

const RETRY_MS = { first: 100, longest: 1000 }
const STEP_MS = 100
/** The lease is checked at least this often. */
const LONGEST_INTERVAL_MS = 2000

interface LeadershipOptions {
  readonly client: Client
  /** The leadership key. */
  readonly key: string
  /** Time to live of the lease. */
  readonly ttlSeconds: number
  /** The URL at which other controllers reach this one; '' for none. */
  readonly url: string
  /** Called after a lost lease was taken again, before it is used. A throw gives it back; retried later. */
  readonly reacquired: (revision: string) => Promise<void>
  /** Called after the lease was lost to another controller. Its throw becomes the problem; retried later. */
  readonly steppedDown: (reason: string) => Promise<never>
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/**
 * This controller's leadership (those of others: follower.ts): a key bound to a lease. Its create revision,
 * the fencing token, differs each time the key is taken, and every commit compares it: a former leader that
 * was stopped or cut off can write nothing.
 */
export class Leadership {
  #lease = ''
  /** Nonce of each election, because a restored etcd repeats revisions. */
  #nonce = ''
  #fencingToken = ''
  /** The last time at which we were known to lead; on the clock of `performance`. */
  #confirmedMs = Number.NEGATIVE_INFINITY
  /** The reason for having given up leadership; no re-election is tried then. */
  #endReason = ''
  /** The number of times that leadership was given up. */
  #ends = 0
  /** Revision of our last write of these keys; '1': the key must exist. */
  readonly lastWrites = new Map<string, string>()
  /** The error of an etcd without room for heartbeats, while we still lead; '' otherwise. */
  noRoomReason = ''
  readonly #maintaining: Background

  constructor(private readonly options: LeadershipOptions) {
    this.#maintaining = new Background({
      work: () => this.#maintain(),
      // Bounded, because a long lease must not hide for long that etcd was restored.
      everyMs: Math.min(LONGEST_INTERVAL_MS, (options.ttlSeconds * 1000) / 3),
      retryMs: RETRY_MS
    })
  }

  /** The reason why leadership is in doubt; '' if it is not. */
  get problem(): string {
    return this.#endReason || this.#maintaining.problem
  }

  /** Time since we were last known to lead, in ms; 0 while the lease lasts and all is well. */
  get unconfirmedMs(): number {
    const agoMs = performance.now() - this.#confirmedMs
    const isOurs = this.problem === '' && this.#fencingToken !== '' && agoMs < this.options.ttlSeconds * 1000
    return isOurs ? 0 : agoMs
  }

  /** The fencing token, our key's create revision. Throws Error if leadership was lost. */
  get fencingToken(): string {
    const { token } = this
    if (token === undefined) throw new Error(this.problem || 'the leadership is lost')
    return token
  }

  /** The fencing token; undefined if leadership was lost. */
  get token(): string | undefined {
    return this.#endReason === '' && this.#fencingToken !== '' ? this.#fencingToken : undefined
  }

  /** Compares the token, and that no key is older than our last write: an older snapshot may hold our key. */
  conditionsFor(revision: string) {
    const { key } = this.options
    const isOurs = [isCreatedAt(key, revision), hasValue(key, this.#self)]
    return [...isOurs, ...[...this.lastWrites].map(pair => isSince(...pair))]
  }

  /** Becomes leader, after waiting for a dead one's lease. Throws LeaderExistsError if another one leads. */
  async acquire(): Promise<void> {
    // Twice the lease: a new leader among etcd's members renews all leases.
    const waitMs = (2 * this.options.ttlSeconds + 1) * 1000
    const giveUp = performance.now() + waitMs
    let isTold = false
    for (;;) {
      const holder = await this.#elect().catch(error => {
        if (!(error instanceof UnclearError) || performance.now() > giveUp) throw error
        return ''
      })
      if (holder === undefined) break
      if (performance.now() > giveUp)
        throw new LeaderExistsError(`${this.#at} is written by ${holder}: stop svcd there first`)
      if (holder !== '' && !isTold)
        this.options.log(
          'info',
          `${this.#at} is written by ${holder}: waiting for its end, ${waitMs / 1000} s at most`
        )
      isTold ||= holder !== ''
      await sleep(STEP_MS)
    }
    this.#maintaining.wake()
  }

  /**
   * Becomes leader if there is none, also after `resign`. First awaits `before` with the fencing token,
   * within the lease; its throw gives the leadership back. Returns the token; undefined if another one leads.
   */
  async campaign(before: (revision: string) => Promise<void>): Promise<string | undefined> {
    if ((await this.#elect(before)) !== undefined) return undefined
    this.#maintaining.wake()
    return this.#fencingToken
  }

  /** Reports the leadership with this token as lost, and tries soon to regain it. */
  reportLost(revision: string): void {
    if (revision !== this.#fencingToken) return
    this.#fencingToken = ''
    this.#maintaining.wake()
  }

  /** Gives up leadership. */
  async resign(reason: string): Promise<void> {
    this.#ends++
    this.#endReason ||= reason
    this.#fencingToken = ''
    this.noRoomReason = ''
    const { client, key } = this.options
    this.lastWrites.delete(key)
    const ID = this.#lease
    this.#lease = ''
    if (ID !== '') await revokeLease(client, ID, this.#limitMs)
  }

  async close(): Promise<void> {
    await this.#maintaining.close()
    await this.resign('the store is closed')
  }

  /** Time limit of a request: leaves time to ask another endpoint within the lease. */
  get #limitMs(): number {
    return (this.options.ttlSeconds * 1000) / 3
  }

  get #at(): string {
    const { client, key } = this.options
    return `etcd at ${client.endpointsText}: what is below ${key.replace(/[^/]*$/, '')}`
  }

  async #maintain(): Promise<void> {
    if (this.#endReason !== '') return
    const ends = this.#ends
    if (this.#fencingToken !== '' && (await this.#renewWithHeartbeat(this.#fencingToken))) return
    // Leadership that was given up meanwhile must not be taken again.
    if (ends !== this.#ends) return
    this.#fencingToken = ''
    const holder = await this.#elect(this.options.reacquired)
    if (holder === undefined) this.#maintaining.wake()
    else if (ends === this.#ends) await this.options.steppedDown(`${this.#at} is written by ${holder} now`)
  }

  /** Renews the lease and sends a heartbeat. False if the leadership with this token is lost. */
  async #renewWithHeartbeat(revision: string): Promise<boolean> {
    const { client, key } = this.options
    const asked = performance.now()
    const lease = this.#lease
    if (!(await renewLease(client, lease, this.#limitMs))) return false
    const sign = put(key, this.#self, lease)
    try {
      const signed = await transact(client, this.conditionsFor(revision), [sign], [], this.#limitMs)
      if (!signed.succeeded) return false
      if (revision === this.#fencingToken) this.lastWrites.set(key, signed.revision)
      this.noRoomReason = ''
    } catch (error) {
      // The heartbeat may still arrive, so it is repeated soon. After the lease has ended this is a fault.
      const isOver = performance.now() - this.#confirmedMs > this.options.ttlSeconds * 1000
      if (error instanceof UnclearError && !isOver) {
        this.#maintaining.wake(RETRY_MS.first)
        return true
      }
      // An etcd without room takes no heartbeat, but nobody can become leader there either.
      if (!(error instanceof NoRoomError)) throw error
      this.noRoomReason = error.message
      if (!(await transact(client, this.conditionsFor(revision), [], [], this.#limitMs)).succeeded)
        return false
    }
    if (revision === this.#fencingToken) this.#confirmedMs = asked
    return true
  }

  /** The value of our key. */
  get #self(): string {
    const { url, ttlSeconds } = this.options
    return JSON.stringify({ host: hostname(), pid: process.pid, url, ttl: ttlSeconds, word: this.#nonce })
  }

  /** Takes the key if it is free, and leads after `before`. Returns the leader; undefined: we lead. */
  async #elect(before = async (_revision: string) => {}): Promise<string | undefined> {
    const { client, key, ttlSeconds } = this.options
    const ends = this.#ends
    const asked = performance.now()
    // If unused, this lease expires by itself.
    const ID = await grantLease(client, ttlSeconds, this.#limitMs)
    const absent = isCreatedAt(key, '0')
    this.#nonce = randomUUID()
    const success = [put(key, this.#self, ID), get(key)]
    const giveBack = () => revokeLease(client, ID, this.#limitMs)
    const { found } = await transact(client, [absent], success, [get(key)], this.#limitMs).catch(
      async error => {
        // It may have been carried out: an unused key must not look like another leader.
        await giveBack()
        throw error
      }
    )
    const [pair] = found
    if (pair?.lease !== ID) {
      await giveBack()
      return pair ? leaderIn(pair.value.toString()).who : 'one who has just ended'
    }
    this.#lease = ID
    try {
      await before(pair.created)
      if (ends !== this.#ends) throw new Error('the leadership was given up meanwhile')
    } catch (error) {
      await giveBack()
      throw error
    }
    this.#endReason = ''
    this.noRoomReason = ''
    this.lastWrites.set(key, pair.created)
    this.#fencingToken = pair.created
    this.#confirmedMs = asked
    return undefined
  }
}

/** The leader. */
export interface Leader {
  /** Host and process, for messages. */
  readonly who: string
  /** The URL at which other controllers reach it; '' if it has none. */
  readonly url: string
  /** Its lease in ms, heartbeats every third of it; undefined for earlier releases without heartbeats. */
  readonly ttlMs?: number
}

/** Parses the leader from the value of its key. */
export function leaderIn(text: string): Leader {
  try {
    const { host, pid, url, ttl } = JSON.parse(text)
    return {
      ...(Number.isSafeInteger(ttl) && ttl > 0 ? { ttlMs: ttl * 1000 } : {}),
      who: `process ${Number(pid)} on ${oneLine(String(host), 100)}`,
      url: typeof url === 'string' && /^https?:$/.test(new URL(url || 'none:').protocol) ? url : ''
    }
  } catch {
    return { who: 'another program', url: '' }
  }
}

/** Grants a lease and returns its id. Throws what `Client.ask` throws. */
export async function grantLease(client: Client, ttlSeconds: number, limitMs: number): Promise<string> {
  const { ID } = await client.ask('lease/grant', { TTL: ttlSeconds }, limitMs)
  if (typeof ID !== 'string' || !/^-?\d{1,19}$/.test(ID))
    throw new RefusedError(`etcd at ${client.endpointsText}: a lease without a number`)
  return ID
}

/** Renews a lease; false if it has expired. Throws what `Client.hedged` throws. */
export async function renewLease(client: Client, lease: string, limitMs: number): Promise<boolean> {
  const { result } = await client.hedged('lease/keepalive', { ID: lease }, limitMs)
  return isObject(result) && Number(result.TTL ?? 0) > 0
}

/** Revokes a lease and with it its keys. Without an answer of etcd, it expires by itself. */
export async function revokeLease(client: Client, lease: string, limitMs: number): Promise<void> {
  await client.ask('lease/revoke', { ID: lease }, limitMs).catch(() => undefined)
}

/** A follower reads the key each 0.5 s: a longer gap means no answers of etcd, or a stopped process. */
const LONGEST_GAP_MS = 1200
/** etcd's default election timeout makes no lease shorter than this. */
const SHORTEST_LEASE_MS = 2000

/** Detects a leader without heartbeats. Its lease may last longer: a new leader of etcd renews all leases. */
export class HeartbeatMonitor {
  /** The last heartbeat, and when it was first seen. */
  #heartbeat: string | undefined
  #seenMs = 0
  /** Start of the current sequence of answers, and the last answer. */
  #answersMs = 0
  #lastMs = Number.NEGATIVE_INFINITY

  /**
   * Takes the last heartbeat, undefined without a leader, and when it was asked for and answered (monotonic,
   * in ms). Returns whether there was no new one for `ttlMs` while etcd answered for at least half of it.
   * `ttlMs` undefined: the leader sends none.
   */
  isSilent(
    sign: string | undefined,
    ttlMs: number | undefined,
    askedMs: number,
    answeredMs: number
  ): boolean {
    if (answeredMs - this.#lastMs > LONGEST_GAP_MS) this.#answersMs = answeredMs
    this.#lastMs = answeredMs
    if (sign !== this.#heartbeat) {
      this.#heartbeat = sign
      this.#seenMs = answeredMs
    }
    if (sign === undefined || ttlMs === undefined) return false
    return (
      askedMs - this.#seenMs >= Math.max(ttlMs, SHORTEST_LEASE_MS) && askedMs - this.#answersMs >= ttlMs / 2
    )
  }
}
