import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import { isObject } from '../../json.js'
import { oneLine } from '../../log.js'
import { type Client, RefusedError, UnclearError } from './client.js'
import { get, isCreatedAt, put, transact } from './kv.js'

const RETRY_MS = { first: 100, longest: 1000 }
const STEP_MS = 100

interface WriterOptions {
  readonly client: Client
  /** The key that its holder may write by. */
  readonly key: string
  /** How long the right outlives its holder. */
  readonly ttlSeconds: number
  /** Called when the right was lost and is ours again, before it is used. A throw gives it back, and it is tried again. */
  readonly regained: () => Promise<void>
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/**
 * The right to write: a key that goes with a lease. It has another create revision each time that somebody gets it, and
 * every commit compares that: who had the right once, and was stopped, or cut off, can write nothing of then any more.
 */
export class Writer {
  readonly #options: WriterOptions
  #lease = ''
  #revision = ''
  /** Why it is not ours again, and never will be. */
  #over = ''
  readonly #keeping: Background

  constructor(options: WriterOptions) {
    this.#options = options
    this.#keeping = new Background({
      work: () => this.#keep(),
      everyMs: (options.ttlSeconds * 1000) / 3,
      retryMs: RETRY_MS
    })
  }

  /** Why the right is in doubt, '' when it is not. */
  get problem(): string {
    return this.#over || this.#keeping.problem
  }

  /** The create revision of our key. Throws Error where the right was lost. */
  get revision(): string {
    if (this.#over !== '') throw new Error(this.#over)
    if (this.#revision === '') throw new Error(this.problem || 'the right to write is lost')
    return this.#revision
  }

  /** Holds where the right is still that of this revision. */
  isAt(revision: string) {
    return isCreatedAt(this.#options.key, revision)
  }

  /** Gets the right, once a holder that is gone has had its time. Throws Error that names who has it. */
  async acquire(): Promise<void> {
    // Twice the time: a member of etcd that has just become leader gives all leases their whole time again.
    const waitMs = (2 * this.#options.ttlSeconds + 1) * 1000
    const giveUp = performance.now() + waitMs
    let isTold = false
    for (;;) {
      const holder = await this.#elect().catch(error => {
        if (!(error instanceof UnclearError) || performance.now() > giveUp) throw error
        return ''
      })
      if (holder === undefined) break
      if (performance.now() > giveUp)
        throw new Error(`${this.#at} is written by ${holder}: stop svcd there first`)
      if (holder !== '' && !isTold)
        this.#options.log(
          'info',
          `${this.#at} is written by ${holder}: waiting for its end, ${waitMs / 1000} s at most`
        )
      isTold ||= holder !== ''
      await sleep(STEP_MS)
    }
    this.#keeping.wake((this.#options.ttlSeconds * 1000) / 3)
  }

  /** The right was found lost: tries to get it again, soon. */
  lost(): void {
    this.#revision = ''
    this.#keeping.wake()
  }

  /** Gives the right up for good. */
  async end(reason: string): Promise<void> {
    this.#over ||= reason
    this.#revision = ''
    const { client } = this.#options
    if (this.#lease !== '')
      await client.ask('lease/revoke', { ID: this.#lease }, this.#limitMs).catch(() => undefined) // it ends by itself
    this.#lease = ''
  }

  async close(): Promise<void> {
    await this.#keeping.close()
    await this.end('the store is closed')
  }

  /** A question takes this long at most, so that another endpoint can be asked before the lease ends. */
  get #limitMs(): number {
    return (this.#options.ttlSeconds * 1000) / 3
  }

  get #at(): string {
    return `etcd at ${this.#options.client.where}: what is below ${this.#options.key.replace(/[^/]*$/, '')}`
  }

  async #keep(): Promise<void> {
    if (this.#over !== '') return
    if (this.#revision !== '' && (await this.#isKept())) return
    this.#revision = ''
    const holder = await this.#elect(this.#options.regained)
    if (holder !== undefined) throw new Error(`${this.#at} is written by ${holder} now`)
  }

  async #isKept(): Promise<boolean> {
    const { client } = this.#options
    const { result } = await client.ask('lease/keepalive', { ID: this.#lease }, this.#limitMs)
    return isObject(result) && Number(result.TTL ?? 0) > 0
  }

  /** Takes the key where nobody has it, and makes the right ours after `before`. Gives who has it; undefined: we have. */
  async #elect(before = async () => {}): Promise<string | undefined> {
    const { client, key, ttlSeconds } = this.#options
    // One that was granted and not used ends by itself.
    const { ID } = await client.ask('lease/grant', { TTL: ttlSeconds }, this.#limitMs)
    if (typeof ID !== 'string' || !/^-?\d{1,19}$/.test(ID))
      throw new RefusedError(`etcd at ${client.where}: a lease without a number`)
    const self = JSON.stringify({ host: hostname(), pid: process.pid })
    const absent = isCreatedAt(key, '0')
    const success = [put(key, self, ID), get(key)]
    const { found } = await transact(client, [absent], success, [get(key)], this.#limitMs)
    const [pair] = found
    if (pair?.lease !== ID) {
      await client.ask('lease/revoke', { ID }, this.#limitMs).catch(() => undefined)
      return pair ? holderIn(pair.value.toString()) : 'one who has just ended'
    }
    this.#lease = ID
    try {
      await before()
    } catch (error) {
      await client.ask('lease/revoke', { ID }, this.#limitMs).catch(() => undefined)
      throw error
    }
    this.#revision = pair.created
    return undefined
  }
}

function holderIn(text: string): string {
  try {
    const { host, pid } = JSON.parse(text)
    return `process ${Number(pid)} on ${oneLine(String(host), 100)}`
  } catch {
    return 'another program'
  }
}
