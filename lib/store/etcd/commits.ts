import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../base/background.js'
import type { JsonObject } from '../../base/json.js'
import { reasonOf } from '../errors.js'
import type { Revertible, Write } from '../medium.js'
import { UnclearError } from './client.js'
import type { Etcd } from './keys.js'
import { get, hasValue, type Outcome, put, read, remove, removeAll, transact } from './kv.js'
import type { Leadership } from './leadership.js'
import { commitsIn, type Intent, intentText, type Unfinished } from './stored.js'

interface CommitsOptions extends Etcd {
  readonly leadership: Leadership
  /** A commit is retried for this long while etcd does not answer. */
  readonly patienceMs: number
  /** Called when another controller has written, or is about to; returns the error of the commit. */
  readonly stepDown: () => Promise<Error>
}

/** Some room below etcd's defaults: 128 operations in a transaction, 1.5 MiB in a request. */
const MOST_WRITES = 100
const MOST_BYTES = 1024 * 1024
const PAUSE_MS = 50
const RETRY_MS = { first: 100, longest: 2000 }
/** Time limit of a large change during a stop; the daemon has 10 s in all. */
const CLOSE_MS = 5000

const byteLength = ({ type, name, text = '' }: Write) =>
  Buffer.byteLength(text) + Buffer.byteLength(name) + type.length + 100
const bytesOf = (writes: readonly Write[]) => writes.reduce((sum, write) => sum + byteLength(write), 0)

interface Unclear {
  /** The head if the commit was carried out, and the head after it was taken back. */
  readonly to: string
  readonly settled: string
  undo(): readonly JsonObject[]
}

/**
 * Commits as the leader. A change is one transaction that compares two keys: the leader's, so that a former
 * leader commits nothing, and the head, which each commit advances, so that retries take effect once.
 */
export class Commits {
  readonly #finishing: Background
  /** The value of the head after our last commit. */
  #head: string | undefined
  /** A commit that was reported as failed but may have been carried out, so it has to be taken back. */
  #unclear: Unclear | undefined
  #intent: Intent | undefined
  #staged = 0
  #isOpen = false
  #closeBy = Number.POSITIVE_INFINITY

  constructor(private readonly o: CommitsOptions) {
    const { log } = o
    this.#finishing = new Background({
      work: () => this.#finish(),
      retryMs: RETRY_MS,
      onFailure: reason => log('warn', `a large change is not yet carried out in etcd: ${reason}`),
      onRecovery: () => log('info', 'the large change is carried out in etcd')
    })
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The number of our last commit, or of the last one before we began. */
  get lastNumber(): number {
    return commitsIn(this.#head)
  }

  /** The reason why a committed large change is not carried out yet; '' if there is none. */
  get problem(): string {
    return this.#finishing.problem
  }

  /** Begins with this fencing token, once `stored` is known. */
  async begin(revision: string, stored: Unfinished | undefined): Promise<void> {
    const { head, intent, abandoned = [] } = stored ?? {}
    this.#head = head
    this.#unclear = undefined
    this.#intent = intent
    this.#isOpen = true
    // Advancing the head tells a former leader that regains its lease that it was superseded.
    await this.#advance(revision, [], () => [])
    for (const id of abandoned) await this.#fenced([removeAll(this.o.keys.stagedPrefix(id))], revision)
    if (intent) this.#finishing.wake()
  }

  /** Stops commits because another controller leads, or may: it finishes what is unfinished. */
  end(): void {
    this.#isOpen = false
    this.o.leadership.lastWrites.delete(this.o.keys.head)
    this.#intent = undefined
  }

  /** Stops commits for shutdown. A large change has `CLOSE_MS` left. */
  stop(): void {
    this.#isOpen = false
    this.#closeBy = performance.now() + CLOSE_MS
  }

  /** Finishes what can be finished in time; call after `stop`. */
  async close(): Promise<void> {
    this.#isOpen = false
    if (this.#intent) await this.#finishing.run().catch(() => undefined)
    await this.#finishing.close()
  }

  /** Resolves when no work of an earlier leadership is under way. */
  settled(): Promise<void> {
    return this.#finishing.settled()
  }

  /** Commits the writes atomically. Throws Error on failure; they are taken back before the next commit. */
  async commit(writes: readonly Revertible[]): Promise<void> {
    const revision = await this.#prepare()
    if (
      writes.length <= MOST_WRITES &&
      bytesOf(writes) <= MOST_BYTES &&
      // Taking it back has to fit into one transaction too.
      bytesOf(writes.map(({ type, name, textBefore }) => ({ type, name, text: textBefore }))) <= MOST_BYTES
    )
      await this.#advance(revision, writes.map(this.#operation), () =>
        writes.map(({ type, name, textBefore }) => this.#operation({ type, name, text: textBefore }))
      )
    else await this.#commitIntent(revision, writes)
  }

  /**
   * Runs a transaction that also compares the fencing token, and retries it while etcd gives no clear answer.
   * Throws UnclearError if it may have been carried out, or may still be.
   */
  write(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[],
    patienceMs = this.o.patienceMs
  ): Promise<Outcome> {
    return this.#withRetries(() => this.#once(revision, conditions, operations, otherwise), patienceMs)
  }

  /** Reports the leadership with this fencing token as lost. */
  leadershipLost(revision: string): never {
    this.o.leadership.reportLost(revision)
    throw new Error(`etcd at ${this.o.client.endpointsText}: the leadership was lost, and is asked for again`)
  }

  /** Throws Error if memory differs from the store: another controller wrote, or etcd was restored. */
  async assertHead(revision: string): Promise<void> {
    if (!this.#isOpen) return
    const { succeeded, found } = await this.#once(revision, [], [get(this.o.keys.head)])
    const known = [this.#head, ...(this.#unclear ? [this.#unclear.to, this.#unclear.settled] : [])]
    if (!succeeded || !known.includes(found[0]?.value.toString())) throw await this.o.stepDown()
  }

  readonly #operation = ({ type, name, text }: Write): JsonObject =>
    text === undefined ? remove(this.o.keys.object(type, name)) : put(this.o.keys.object(type, name), text)

  /** Takes back an unclear commit and finishes a large one. Returns the fencing token. */
  async #prepare(): Promise<string> {
    const { fencingToken } = this.o.leadership
    if (this.#unclear) await this.#resolveUnclear(fencingToken)
    if (this.#intent) await this.#finishing.run()
    return fencingToken
  }

  /** Stages the writes in parts; the last key, the intent, commits them. The objects' keys follow. */
  async #commitIntent(revision: string, writes: readonly Revertible[]): Promise<void> {
    const { intent } = this.o.keys
    // Never reused, so that a delayed request cannot affect a later change.
    const id = `${revision}-${++this.#staged}`
    const unstage = removeAll(this.o.keys.stagedPrefix(id))
    try {
      for (const part of this.#parts(writes, ({ type, name, text = '' }) =>
        put(this.o.keys.stagedObject(id, type, name), text)
      ))
        await this.#fenced(part, revision)
    } catch (error) {
      await this.#once(revision, [], [unstage]).catch(() => undefined) // the next start does it
      throw error
    }
    const change = { id, writes }
    await this.#advance(revision, [put(intent, intentText(change))], () => [remove(intent), unstage])
    // Another controller may have taken over before the answer came, and finished the change.
    if (!this.#isOpen) return
    this.#intent = change
    this.#finishing.wake()
  }

  /** Yields operations in parts of one transaction each. Throws Error for an object over etcd's limit. */
  *#parts(
    writes: readonly Write[],
    operation: (write: Write) => JsonObject,
    last?: JsonObject[]
  ): Generator<JsonObject[]> {
    let part: JsonObject[] = []
    let bytes = 0
    for (const write of writes) {
      const size = byteLength(write)
      if (size > MOST_BYTES)
        throw new Error(
          `${write.type} ${write.name} has ${size} bytes: etcd holds objects of up to ${MOST_BYTES} bytes`
        )
      if (part.length === MOST_WRITES || bytes + size > MOST_BYTES) {
        yield part
        part = []
        bytes = 0
      }
      part.push(operation(write))
      bytes += size
    }
    yield part
    if (last) yield last
  }

  /** Brings the objects' keys up to the intent, then removes it and the staged writes. */
  async #finish(): Promise<void> {
    const change = this.#intent
    if (!change) return
    const { intent } = this.o.keys
    const last = [remove(intent), removeAll(this.o.keys.stagedPrefix(change.id))]
    // A delayed part must not bring back old texts after the intent is gone.
    const isDue = hasValue(intent, intentText(change))
    const { fencingToken } = this.o.leadership
    for (const part of this.#parts(change.writes, this.#operation, last)) {
      if (performance.now() > this.#closeBy) throw new Error('shutting down; the next start goes on with it')
      const { succeeded, found } = await this.write(fencingToken, [isDue], part, [get(intent)])
      if (succeeded) continue
      // An earlier try carried out the last part, or another leader finished the change.
      if (found[0] === undefined) break
      this.leadershipLost(fencingToken)
    }
    if (this.#intent === change) this.#intent = undefined
  }

  /** Runs idempotent operations, fenced by the token. */
  async #fenced(operations: readonly JsonObject[], revision: string): Promise<void> {
    const { succeeded } = await this.write(revision, [], operations, [])
    if (!succeeded) this.leadershipLost(revision)
  }

  /** One try of a transaction that compares the fencing token. */
  #once(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[] = []
  ): Promise<Outcome> {
    const compare = [...this.o.leadership.conditionsFor(revision), ...conditions]
    return transact(this.o.client, compare, operations, otherwise)
  }

  /** Advances the head together with the operations. If the outcome is unclear, notes how to undo them. */
  async #advance(
    revision: string,
    operations: readonly JsonObject[],
    back: () => readonly JsonObject[]
  ): Promise<void> {
    const number = commitsIn(this.#head) + 1
    const to = `${number} ${revision}`
    try {
      await this.#move(revision, this.#head, to, operations)
    } catch (error) {
      if (error instanceof UnclearError)
        this.#unclear = { to, settled: `${number + 1} ${revision}`, undo: back }
      throw error
    }
    this.#head = to
  }

  /** Moves the head. Throws UnclearError if that was or may still be carried out. */
  async #move(
    revision: string,
    from: string | undefined,
    to: string,
    operations: readonly JsonObject[]
  ): Promise<void> {
    const { head } = this.o.keys
    const moved = [...operations, put(head, to)]
    const outcome = await this.write(revision, [hasValue(head, from)], moved, [get(head)])
    const [there] = outcome.found
    // An earlier try was carried out, but its answer was lost.
    if (!outcome.succeeded && there?.value.toString() !== to) this.leadershipLost(revision)
    if (this.#isOpen) this.o.leadership.lastWrites.set(head, there?.modified ?? outcome.revision)
  }

  /** Retries while the answer is unclear. A refusal after that says nothing about the earlier tries. */
  async #withRetries<R>(ask: () => Promise<R>, patienceMs: number): Promise<R> {
    let unclear: UnclearError | undefined
    for (const giveUp = performance.now() + patienceMs; ; await sleep(PAUSE_MS)) {
      try {
        return await ask()
      } catch (error) {
        if (error instanceof UnclearError) unclear = error
        else throw unclear ? new UnclearError(reasonOf(error)) : error
        if (performance.now() > giveUp) throw unclear
      }
    }
  }

  /** Takes back a commit reported as failed; if it was not carried out, makes sure that it never will be. */
  async #resolveUnclear(revision: string): Promise<void> {
    const { to, settled, undo } = this.#unclear as Unclear
    const [pair] = await read(this.o.client, this.o.keys.head)
    const head = pair?.value.toString()
    if (head === to) await this.#move(revision, to, settled, undo())
    else if (head === this.#head) await this.#move(revision, head, settled, [])
    else if (head !== settled) throw await this.o.stepDown()
    this.#head = settled
    this.#unclear = undefined
  }
}
