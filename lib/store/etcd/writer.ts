import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import { isObject } from '../../json.js'
import { oneLine } from '../../log.js'
import { WrittenError } from '../errors.js'
import { type Client, NoRoomError, RefusedError, UnclearError } from './client.js'
import { get, holds, isCreatedAt, isSince, put, transact } from './kv.js'

const RETRY_MS = { first: 100, longest: 1000 }
const STEP_MS = 100
/** So often it is asked at least whether the right is ours. */
const MOST_MS = 2000

interface WriterOptions {
  readonly client: Client
  /** The key that its holder may write by. */
  readonly key: string
  /** How long the right outlives its holder. */
  readonly ttlSeconds: number
  /** Where other controllers reach who holds it; '' where they do not. */
  readonly url: string
  /** Called when the right was lost and is ours again, before it is used. A throw gives it back, and it is tried again. */
  readonly regained: (revision: string) => Promise<void>
  /** Called when the right was lost, and another one has it. A throw is why it is not ours; it is tried again. */
  readonly overtaken: (reason: string) => Promise<never>
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/**
 * The right to write: a key that goes with a lease. It has another create revision each time that somebody gets it, and
 * every commit compares that: who had the right once, and was stopped, or cut off, can write nothing of then any more.
 */
export class Writer {
  #lease = ''
  /** Another one for each right that was asked for: in a restored etcd, revisions come again. */
  #word = ''
  #revision = ''
  /** When it was last asked whether it is ours, and it was; by the clock of `performance`. */
  #heldMs = Number.NEGATIVE_INFINITY
  /** Why it is not ours again, and is not asked for. */
  #over = ''
  /** How often it was given up. */
  #ends = 0
  /** At which revision each of these keys was last written, as far as we know; '1': it has to be there. */
  readonly since = new Map<string, string>()
  /** The answer of an etcd that takes no sign of life, as it has no room, while the right is ours all the same; '' otherwise. */
  full = ''
  readonly #keeping: Background

  constructor(private readonly options: WriterOptions) {
    this.#keeping = new Background({
      work: () => this.#keep(),
      // A long lease must not hide for long that etcd was restored.
      everyMs: Math.min(MOST_MS, (options.ttlSeconds * 1000) / 3),
      retryMs: RETRY_MS
    })
  }

  /** Why the right is in doubt, '' when it is not. */
  get problem(): string {
    return this.#over || this.#keeping.problem
  }

  /**
   * How long ago the right was last known to be ours, in ms; 0 while it is. It is ours for as long as its lease, and who was stopped, or
   * cut off, for longer does not know.
   */
  get doubtMs(): number {
    const agoMs = performance.now() - this.#heldMs
    const isOurs = this.problem === '' && this.#revision !== '' && agoMs < this.options.ttlSeconds * 1000
    return isOurs ? 0 : agoMs
  }

  /** The create revision of our key. Throws Error where the right was lost. */
  get revision(): string {
    if (this.#over !== '') throw new Error(this.#over)
    if (this.#revision === '') throw new Error(this.problem || 'the right to write is lost')
    return this.#revision
  }

  /** The same; undefined where the right was lost. */
  get right(): string | undefined {
    return this.#over === '' && this.#revision !== '' ? this.#revision : undefined
  }

  /** Holds where the right is still that of this revision, and no key is older than we wrote it: an older snapshot may have our right. */
  isAt(revision: string) {
    const { key } = this.options
    const isOurs = [isCreatedAt(key, revision), holds(key, this.#self)]
    return [...isOurs, ...[...this.since].map(pair => isSince(...pair))]
  }

  /** Gets the right, once a holder that is gone has had its time. Throws WrittenError where another one has it. */
  async acquire(): Promise<void> {
    // Twice the time: a member of etcd that has just become leader gives all leases their whole time again.
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
        throw new WrittenError(`${this.#at} is written by ${holder}: stop svcd there first`)
      if (holder !== '' && !isTold)
        this.options.log(
          'info',
          `${this.#at} is written by ${holder}: waiting for its end, ${waitMs / 1000} s at most`
        )
      isTold ||= holder !== ''
      await sleep(STEP_MS)
    }
    this.#keeping.wake()
  }

  /**
   * Gets the right if nobody has it, also one that was given up, after `before`, which is told the create revision of our key and
   * may take as long as the lease. Gives that revision; undefined where another one has the right. A throw gives it back.
   */
  async take(before: (revision: string) => Promise<void>): Promise<string | undefined> {
    if ((await this.#elect(before)) !== undefined) return undefined
    this.#keeping.wake()
    return this.#revision
  }

  /** The right of this revision was found lost: tries to get it again, soon. */
  lost(revision: string): void {
    if (revision !== this.#revision) return
    this.#revision = ''
    this.#keeping.wake()
  }

  /** Gives the right up. */
  async end(reason: string): Promise<void> {
    this.#ends++
    this.#over ||= reason
    this.#revision = ''
    this.full = ''
    const { client, key } = this.options
    this.since.delete(key)
    const ID = this.#lease
    this.#lease = ''
    if (ID !== '') await revoke(client, ID, this.#limitMs)
  }

  async close(): Promise<void> {
    await this.#keeping.close()
    await this.end('the store is closed')
  }

  /** A question takes this long at most, so that another endpoint can be asked before the lease ends. */
  get #limitMs(): number {
    return (this.options.ttlSeconds * 1000) / 3
  }

  get #at(): string {
    return `etcd at ${this.options.client.where}: what is below ${this.options.key.replace(/[^/]*$/, '')}`
  }

  async #keep(): Promise<void> {
    if (this.#over !== '') return
    const ends = this.#ends
    if (this.#revision !== '' && (await this.#isKept(this.#revision))) return
    // Who has given it up meanwhile must not get it again.
    if (ends !== this.#ends) return
    this.#revision = ''
    const holder = await this.#elect(this.options.regained)
    if (holder === undefined) this.#keeping.wake()
    else if (ends === this.#ends) await this.options.overtaken(`${this.#at} is written by ${holder} now`)
  }

  /** Keeps the lease, and gives the others a sign of life. False where the right of this revision is lost. */
  async #isKept(revision: string): Promise<boolean> {
    const { client, key } = this.options
    const asked = performance.now()
    const lease = this.#lease
    if (!(await isKept(client, lease, this.#limitMs))) return false
    const sign = put(key, this.#self, lease)
    try {
      const signed = await transact(client, this.isAt(revision), [sign], [], this.#limitMs)
      if (!signed.succeeded) return false
      if (revision === this.#revision) this.since.set(key, signed.revision)
      this.full = ''
    } catch (error) {
      // It may be taken yet: it is given again soon. Once the lease is over it is a fault that has to be seen.
      const isOver = performance.now() - this.#heldMs > this.options.ttlSeconds * 1000
      if (error instanceof UnclearError && !isOver) {
        this.#keeping.wake(RETRY_MS.first)
        return true
      }
      // An etcd without room takes no sign, and nobody can get the right there.
      if (!(error instanceof NoRoomError)) throw error
      this.full = error.message
      if (!(await transact(client, this.isAt(revision), [], [], this.#limitMs)).succeeded) return false
    }
    if (revision === this.#revision) this.#heldMs = asked
    return true
  }

  /** What our key holds. */
  get #self(): string {
    const { url, ttlSeconds } = this.options
    return JSON.stringify({ host: hostname(), pid: process.pid, url, ttl: ttlSeconds, word: this.#word })
  }

  /** Takes the key where nobody has it, and makes the right ours after `before`. Gives who has it; undefined: we have. */
  async #elect(before = async (_revision: string) => {}): Promise<string | undefined> {
    const { client, key, ttlSeconds } = this.options
    const ends = this.#ends
    const asked = performance.now()
    // One that was granted and not used ends by itself.
    const ID = await granted(client, ttlSeconds, this.#limitMs)
    const absent = isCreatedAt(key, '0')
    this.#word = randomUUID()
    const success = [put(key, this.#self, ID), get(key)]
    const giveBack = () => revoke(client, ID, this.#limitMs)
    const { found } = await transact(client, [absent], success, [get(key)], this.#limitMs).catch(
      async error => {
        // It may have been done: what nobody uses must not look like another writer.
        await giveBack()
        throw error
      }
    )
    const [pair] = found
    if (pair?.lease !== ID) {
      await giveBack()
      return pair ? holderIn(pair.value.toString()).who : 'one who has just ended'
    }
    this.#lease = ID
    try {
      await before(pair.created)
      if (ends !== this.#ends) throw new Error('the right to write was given up meanwhile')
    } catch (error) {
      await giveBack()
      throw error
    }
    this.#over = ''
    this.full = ''
    this.since.set(key, pair.created)
    this.#revision = pair.created
    this.#heldMs = asked
    return undefined
  }
}

/** Who has the right to write. */
export interface Holder {
  /** In words. */
  readonly who: string
  /** Where other controllers reach it; '' where it does not say. */
  readonly url: string
  /** It changes its key every third of this, in ms; undefined: it does not, as earlier releases. */
  readonly ttlMs?: number
}

/** Who has the right to write, by what the key holds. */
export function holderIn(text: string): Holder {
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

/** A new lease, by its number. Throws what `Client.ask` throws. */
export async function granted(client: Client, ttlSeconds: number, limitMs: number): Promise<string> {
  const { ID } = await client.ask('lease/grant', { TTL: ttlSeconds }, limitMs)
  if (typeof ID !== 'string' || !/^-?\d{1,19}$/.test(ID))
    throw new RefusedError(`etcd at ${client.where}: a lease without a number`)
  return ID
}

/** Gives a lease its whole time again; false where it has ended. Throws what `Client.hedged` throws. */
export async function isKept(client: Client, lease: string, limitMs: number): Promise<boolean> {
  const { result } = await client.hedged('lease/keepalive', { ID: lease }, limitMs)
  return isObject(result) && Number(result.TTL ?? 0) > 0
}

/** Ends a lease, and takes away what goes with it. Where etcd does not answer, it ends by itself. */
export async function revoke(client: Client, lease: string, limitMs: number): Promise<void> {
  await client.ask('lease/revoke', { ID: lease }, limitMs).catch(() => undefined)
}
