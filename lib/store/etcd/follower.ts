import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import { reasonOf } from '../errors.js'
import type { Write } from '../medium.js'
import { type Client, UnclearError } from './client.js'
import type { Keys } from './keys.js'
import { get, transact } from './kv.js'
import { Replica } from './replica.js'
import { StoredKeys } from './stored.js'
import { watching } from './watch.js'

/** Who is told of what others commit. */
export interface Followed {
  /** One commit, at most one write for an object. The next one is told once it has resolved. */
  changed(writes: readonly Write[]): Promise<void>
  /** All that is stored, after a gap: etcd no longer tells what happened since then. */
  reload(stored: StoredKeys): Promise<void>
}

interface FollowerOptions {
  readonly client: Client
  readonly keys: Keys
  readonly followed: Followed
  readonly log: (level: 'warn' | 'info', message: string) => void
}

const PAUSE_MS = 100
/** So often it is asked whether all that is committed was told. */
const LOOK_MS = 500
const LOOK_LIMIT_MS = 2000
/** What was committed so long ago and not told yet was lost with a connection. */
const SILENT_MS = 2000

/** Follows what others commit: each commit whole, in order, once, whatever happens to connections and members of etcd. */
export class Follower {
  readonly #o: FollowerOptions
  #replica: Replica | undefined
  /** All up to this revision was told. */
  #revision = '0'
  /** When it was last known that nothing was left to tell; by the clock of `performance`. */
  #freshMs = performance.now()
  #behindSinceMs: number | undefined
  #problem = ''
  readonly #closing = new AbortController()
  #watch: AbortController | undefined
  #running: Promise<void> | undefined
  #waiting: { readonly revision: bigint; done(): void }[] = []
  readonly #looking = new Background({ work: () => this.#look(), everyMs: LOOK_MS })

  constructor(options: FollowerOptions) {
    this.#o = options
  }

  /** Begins with what was read; nothing between that and what is told is left out. */
  start(stored: StoredKeys): void {
    this.#begin(stored)
    this.#running = this.#run()
    this.#looking.wake(LOOK_MS)
  }

  /** The revision of etcd that is known here. */
  get revision(): string {
    return this.#revision
  }

  /** How long ago it was last known that nothing is missing here, in ms. */
  get lagMs(): number {
    return performance.now() - this.#freshMs
  }

  get problem(): string {
    return this.#problem || this.#looking.problem
  }

  /** Resolves once all up to that revision was told. */
  reached(revision: string): Promise<void> {
    const wanted = BigInt(revision)
    if (BigInt(this.#revision) >= wanted) return Promise.resolve()
    return new Promise(done => this.#waiting.push({ revision: wanted, done }))
  }

  /** What is told under way is told to its end. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#watch?.abort()
    await this.#running
    await this.#looking.close()
  }

  #begin(stored: StoredKeys): void {
    this.#replica = new Replica(this.#o.keys, stored.staged)
    this.#advance(stored.revision)
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      this.#watch = new AbortController()
      try {
        await this.#follow(this.#watch.signal)
      } catch (error) {
        if (signal.aborted) return
        // What cannot be told as it comes is read as a whole.
        if (!(error instanceof UnclearError || this.#watch.signal.aborted)) this.#replica = undefined
        const reason = reasonOf(error)
        if (this.#problem === '')
          this.#o.log('warn', `what other controllers change is not heard, and is asked for again: ${reason}`)
        this.#problem = reason
        await sleep(PAUSE_MS)
      }
    }
  }

  async #follow(signal: AbortSignal): Promise<never> {
    const { client, keys, followed } = this.#o
    if (!this.#replica) {
      const stored = await StoredKeys.read(client, keys)
      await followed.reload(stored)
      this.#begin(stored)
    }
    const from = String(BigInt(this.#revision) + 1n)
    const moments = watching(client, keys.prefix, from, signal)
    for (;;) {
      const { value: moment } = await moments.next()
      const writes = (this.#replica as Replica).take(moment)
      if (writes.length > 0) await followed.changed(writes)
      this.#advance(moment.revision)
    }
  }

  #advance(revision: string): void {
    this.#revision = revision
    const reached = BigInt(revision)
    this.#waiting = this.#waiting.filter(({ revision, done }) => revision > reached || void done())
  }

  /** Notices a watch that tells nothing more: a connection may be gone without a word. */
  async #look(): Promise<void> {
    const { client, keys } = this.#o
    const asked = performance.now()
    const { found } = await transact(client, [], [get(keys.head)], [], LOOK_LIMIT_MS)
    if (BigInt(found[0]?.modified ?? '0') <= BigInt(this.#revision)) {
      this.#freshMs = asked
      this.#behindSinceMs = undefined
      if (this.#problem !== '') this.#o.log('info', 'what other controllers change is heard again')
      this.#problem = ''
      return
    }
    this.#behindSinceMs ??= performance.now()
    if (performance.now() - this.#behindSinceMs < SILENT_MS) return
    this.#behindSinceMs = undefined
    this.#watch?.abort(new Error('the watch tells nothing more'))
  }
}
