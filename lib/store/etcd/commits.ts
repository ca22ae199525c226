import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import type { JsonObject } from '../../json.js'
import { reasonOf } from '../errors.js'
import type { Revertible, Write } from '../medium.js'
import { type Client, UnclearError } from './client.js'
import type { Keys } from './keys.js'
import { get, holds, type Outcome, put, remove, removeAll, transact } from './kv.js'
import { commitsIn, type Intent, intentText, type Unfinished } from './stored.js'
import type { Writer } from './writer.js'

interface CommitsOptions {
  readonly client: Client
  readonly keys: Keys
  readonly writer: Writer
  /** How long a commit asks again while etcd does not answer. */
  readonly patienceMs: number
  /** Called when another one has written, or is about to; gives what a commit then fails with. */
  readonly overtaken: () => Promise<Error>
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** etcd takes 128 operations in a transaction and 1.5 MiB in a request, unless it is told otherwise; some room is left. */
const MOST_WRITES = 100
const MOST_BYTES = 1024 * 1024
/** How long a try may take, with all members that are asked in it. */
const LIMIT_MS = 2000
const PAUSE_MS = 50
const RETRY_MS = { first: 100, longest: 2000 }
/** How long a stop may carry out a large change; the daemon has 10 s in all to stop. */
const CLOSE_MS = 5000

const byteLength = ({ type, name, text = '' }: Write) =>
  Buffer.byteLength(text) + Buffer.byteLength(name) + type.length + 100
const bytesOf = (writes: readonly Write[]) => writes.reduce((sum, write) => sum + byteLength(write), 0)

interface Unclear {
  /** What the head holds if it was carried out, and once it is taken back. */
  readonly to: string
  readonly settled: string
  back(): readonly JsonObject[]
}

/**
 * The commits of who writes. A change is one transaction that compares two keys: the writer's, so that who lost the right commits
 * nothing, and the head, which every commit moves on, so that a transaction that is sent again is carried out once.
 */
export class Commits {
  readonly #finishing: Background
  /** What the head holds after our last commit. */
  #head: string | undefined
  /** A commit of which nobody knows whether it was carried out: told as failed, so it has to be taken back. */
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
      failed: reason => log('warn', `a large change is not yet carried out in etcd: ${reason}`),
      recovered: () => log('info', 'the large change is carried out in etcd')
    })
  }

  /** Whether changes are taken. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The number of our last commit, or of the last one that was there when we began. */
  get number(): number {
    return commitsIn(this.#head)
  }

  /** Why a large change that is committed is not carried out yet, '' when there is none. */
  get problem(): string {
    return this.#finishing.problem
  }

  /** Begins, by the right to write of this revision, where what is stored is known. */
  async begin(revision: string, stored: Unfinished | undefined): Promise<void> {
    const { head, intent, abandoned = [] } = stored ?? {}
    this.#head = head
    this.#unclear = undefined
    this.#intent = intent
    this.#isOpen = true
    // The head moves on, so that an earlier writer that gets its right back knows of this one, whatever it writes.
    await this.#advance(revision, [], () => [])
    for (const id of abandoned) await this.#fenced([removeAll(this.o.keys.stagedBy(id))], revision)
    if (intent) this.#finishing.wake()
  }

  /** Takes no more changes, as another one writes, or may: what is not carried out that one carries out. */
  end(): void {
    this.#isOpen = false
    this.o.writer.since.delete(this.o.keys.head)
    this.#intent = undefined
  }

  /** Takes no more changes, as svcd ends. A large change has so long from now on to be carried out. */
  stop(): void {
    this.#isOpen = false
    this.#closeBy = performance.now() + CLOSE_MS
  }

  /** Carries out what can be carried out in time; after `stop`. */
  async close(): Promise<void> {
    this.#isOpen = false
    if (this.#intent) await this.#finishing.run().catch(() => undefined)
    await this.#finishing.close()
  }

  /** Resolves when nothing of an earlier right to write is being carried out any more. */
  settled(): Promise<void> {
    return this.#finishing.settled()
  }

  /** Commits the writes as one. Throws Error where that failed: they are taken back then, at once or before the next commit. */
  async commit(writes: readonly Revertible[]): Promise<void> {
    const revision = await this.#ready()
    if (
      writes.length <= MOST_WRITES &&
      bytesOf(writes) <= MOST_BYTES &&
      // What takes it back has to be one transaction too.
      bytesOf(writes.map(({ type, name, textBefore }) => ({ type, name, text: textBefore }))) <= MOST_BYTES
    )
      await this.#advance(revision, writes.map(this.#operation), () =>
        writes.map(({ type, name, textBefore }) => this.#operation({ type, name, text: textBefore }))
      )
    else await this.#commitIntent(revision, writes)
  }

  /**
   * A transaction that compares the right to write of this revision too, sent again while etcd gives no clear answer. Throws
   * UnclearError where it may have been carried out, or may yet be.
   */
  write(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[],
    patienceMs = this.o.patienceMs
  ): Promise<Outcome> {
    return this.#patiently(() => this.#once(revision, conditions, operations, otherwise), patienceMs)
  }

  /** The right to write of this revision was found lost. */
  lost(revision: string): never {
    this.o.writer.lost(revision)
    throw new Error(`etcd at ${this.o.client.where}: the right to write was lost, and is asked for again`)
  }

  /** Throws Error where memory is not what is stored: another one has written since we could, or etcd was restored. */
  async assertHead(revision: string): Promise<void> {
    if (!this.#isOpen) return
    const { succeeded, found } = await this.#once(revision, [], [get(this.o.keys.head)])
    const known = [this.#head, ...(this.#unclear ? [this.#unclear.to, this.#unclear.settled] : [])]
    if (!succeeded || !known.includes(found[0]?.value.toString())) throw await this.o.overtaken()
  }

  readonly #operation = ({ type, name, text }: Write): JsonObject =>
    text === undefined ? remove(this.o.keys.object(type, name)) : put(this.o.keys.object(type, name), text)

  /** Takes back what is unclear, and finishes what is unfinished: nothing is written over either. Gives the writer's revision. */
  async #ready(): Promise<string> {
    const { revision } = this.o.writer
    if (this.#unclear) await this.#settle(revision)
    if (this.#intent) await this.#finishing.run()
    return revision
  }

  /** Stages the writes, a part at a time; the last key, the intent, commits them. The objects' keys follow. */
  async #commitIntent(revision: string, writes: readonly Revertible[]): Promise<void> {
    const { intent } = this.o.keys
    // Never used twice: a request that etcd gets late does nothing to a later change.
    const id = `${revision}-${++this.#staged}`
    const unstage = removeAll(this.o.keys.stagedBy(id))
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
    // Another one may have got the right before the answer came: that one has finished it.
    if (!this.#isOpen) return
    this.#intent = change
    this.#finishing.wake()
  }

  /** Operations in parts that etcd takes as one transaction each. Throws Error for an object that it does not take at all. */
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

  /** Brings the objects' keys up to the intent, then removes it and all that is staged. */
  async #finish(): Promise<void> {
    const change = this.#intent
    if (!change) return
    const { intent } = this.o.keys
    const last = [remove(intent), removeAll(this.o.keys.stagedBy(change.id))]
    // A part that etcd gets late, when the intent is gone, must not bring old texts back.
    const isDue = holds(intent, intentText(change))
    const { revision } = this.o.writer
    for (const part of this.#parts(change.writes, this.#operation, last)) {
      if (performance.now() > this.#closeBy) throw new Error('shutting down; the next start goes on with it')
      const { succeeded, found } = await this.write(revision, [isDue], part, [get(intent)])
      if (succeeded) continue
      // The last part was carried out when it was sent before, or another writer has carried all of them out.
      if (found[0] === undefined) break
      this.lost(revision)
    }
    if (this.#intent === change) this.#intent = undefined
  }

  /** Carries operations out that may be carried out twice, while the right to write is ours. */
  async #fenced(operations: readonly JsonObject[], revision: string): Promise<void> {
    const { succeeded } = await this.write(revision, [], operations, [])
    if (!succeeded) this.lost(revision)
  }

  /** One try of a transaction that compares who may write. */
  #once(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[] = []
  ): Promise<Outcome> {
    const compare = [...this.o.writer.isAt(revision), ...conditions]
    return transact(this.o.client, compare, operations, otherwise, LIMIT_MS)
  }

  /** Moves the head on, with the operations. When nobody knows whether that was done, `back` is noted. */
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
      if (error instanceof UnclearError) this.#unclear = { to, settled: `${number + 1} ${revision}`, back }
      throw error
    }
    this.#head = to
  }

  /** From one head to another. Throws UnclearError where it may have been done, or may yet be. */
  async #move(
    revision: string,
    from: string | undefined,
    to: string,
    operations: readonly JsonObject[]
  ): Promise<void> {
    const { head } = this.o.keys
    const moved = [...operations, put(head, to)]
    const outcome = await this.write(revision, [holds(head, from)], moved, [get(head)])
    const [there] = outcome.found
    // It was done when it was sent before, and the answer was lost.
    if (!outcome.succeeded && there?.value.toString() !== to) this.lost(revision)
    if (this.#isOpen) this.o.writer.since.set(head, there?.modified ?? outcome.revision)
  }

  /** Asks again while etcd gives no clear answer. After one such, a refusal says nothing of what was sent before it. */
  async #patiently<R>(ask: () => Promise<R>, patienceMs: number): Promise<R> {
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

  /** Takes a commit back that was told as failed, if it was carried out; if not, moves the head on, so that it never will be. */
  async #settle(revision: string): Promise<void> {
    const { to, settled, back } = this.#unclear as Unclear
    const head = await this.#headNow()
    if (head === to) await this.#move(revision, to, settled, back())
    else if (head === this.#head) await this.#move(revision, head, settled, [])
    else if (head !== settled) throw await this.o.overtaken()
    this.#head = settled
    this.#unclear = undefined
  }

  async #headNow(): Promise<string | undefined> {
    const { found } = await transact(this.o.client, [], [get(this.o.keys.head)], [], LIMIT_MS)
    return found[0]?.value.toString()
  }
}
