import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../background.js'
import { atOnce } from '../../concurrency.js'
import { createOnce } from '../../disk/create-once.js'
import { exists } from '../../disk/missing.js'
import type { JsonObject } from '../../json.js'
import { reasonOf } from '../errors.js'
import { LAYOUT, VERSION } from '../layout.js'
import type { Controller, Followed, Reached, Revertible, SharedMedium, Standing, Write } from '../medium.js'
import { Client, type ClientOptions, UnclearError } from './client.js'
import { Controllers, controllersAt } from './controllers.js'
import { compared, marksIn, refuseOtherKeys } from './key-marks.js'
import { Keys } from './keys.js'
import { get, holds, type Outcome, put, remove, removeAll, transact } from './kv.js'
import { AllRecords } from './records.js'
import type { Keeper } from './shared-records.js'
import { Standby } from './standby.js'
import { commitsIn, type Intent, intentText, StoredKeys, type Unfinished } from './stored.js'
import { holderIn, Writer } from './writer.js'

/** What an etcd store is kept in. */
export interface EtcdOptions extends ClientOptions {
  /** What all keys begin with. Default /svcd/. */
  readonly prefix?: string
  /** How long the right to write outlives who had it: 1 to 60. Default 3. */
  readonly ttlSeconds?: number
  /** Where other controllers reach this one. Default '': they do not. */
  readonly url?: string
  /** How long a commit asks again while etcd does not answer. Default 5000. */
  readonly patienceMs?: number
  readonly log?: (level: 'warn' | 'info', message: string) => void
}

/** etcd takes 128 operations in a transaction and 1.5 MiB in a request, unless it is told otherwise; some room is left. */
const MOST_WRITES = 100
const MOST_BYTES = 1024 * 1024
/** How long one member may take for an answer before another one is asked. */
const LIMIT_MS = 2000
const PAUSE_MS = 50
const RETRY_MS = { first: 100, longest: 2000 }
/** Who cannot take over reads all that is stored for each try. */
const TAKE_MS = { first: 500, longest: 30_000 }
/** How long a stop may carry out a large change; the daemon has 10 s in all to stop. */
const CLOSE_MS = 5000
/** Nothing is lost where a report is not stored: the node hears that it is to try again. */
const RECORD_MS = 2000

const byteLength = ({ type, name, text = '' }: Write) =>
  Buffer.byteLength(text) + Buffer.byteLength(name) + type.length + 100
const bytesOf = (writes: readonly Write[]) => writes.reduce((sum, write) => sum + byteLength(write), 0)

/** A file of the state directory of who has had objects in etcd. */
const USED = 'objects-in-etcd'
const USED_TEXT =
  'This svcd has its objects in etcd. While this file is here, it does not begin on an etcd that holds nothing.\n'

const OTHER_WRITES = 'another controller writes'
const NOT_OPEN = 'the store is not open for changes'
const FOLLOWS = 'this svcd does not write: it follows the one that does'

interface Unclear {
  /** What the head holds if it was carried out, and once it is taken back. */
  readonly to: string
  readonly settled: string
  back(): readonly JsonObject[]
}

/**
 * A store kept in etcd. A change is one transaction that compares two keys: the writer's, so that who lost the right commits
 * nothing, and the head, which every commit moves on, so that a transaction that is sent again is carried out once.
 */
export class Etcd implements SharedMedium {
  readonly #client: Client
  readonly #keys: Keys
  readonly #writer: Writer
  readonly #patienceMs: number
  readonly #ttlMs: number
  readonly #url: string
  readonly #log: NonNullable<EtcdOptions['log']>
  readonly #finishing: Background
  /** What was read; `start` forgets it. */
  stored: StoredKeys | undefined
  /** What the head holds after our last commit. */
  #head: string | undefined
  /** A commit of which nobody knows whether it was carried out: told as failed, so it has to be taken back. */
  #unclear: Unclear | undefined
  #intent: Intent | undefined
  #staged = 0
  #isOpen = false
  /** Who is told what others write, should the right be lost to one. */
  #followed: Followed | undefined
  /** In the place of all this while another one writes. */
  #standby: Standby | undefined
  /** Outlives the standbys: a takeover that fails makes another one. */
  readonly #taking: Background
  #controllers: Controllers | undefined
  /** What is kept of nodes and requests and is no object. */
  readonly records: AllRecords
  #isClosed = false
  #closeBy = Number.POSITIVE_INFINITY

  constructor({
    prefix = '/svcd/',
    ttlSeconds = 3,
    url = '',
    patienceMs = 5000,
    log = () => {},
    ...reached
  }: EtcdOptions) {
    this.#client = new Client(reached)
    this.#keys = new Keys(prefix)
    this.#patienceMs = patienceMs
    this.#ttlMs = ttlSeconds * 1000
    this.#url = url
    this.#log = log
    this.records = new AllRecords({ keys: this.#keys, keeper: this.#keeper(), log })
    this.#writer = new Writer({
      client: this.#client,
      key: this.#keys.writer,
      ttlSeconds,
      url,
      log,
      regained: () => this.#assertHead(),
      overtaken: async reason => {
        if (!this.#followed || !this.#isOpen) throw new Error(reason)
        throw await this.#overtaken()
      }
    })
    this.#finishing = new Background({
      work: () => this.#finish(),
      retryMs: RETRY_MS,
      failed: reason => log('warn', `a large change is not yet carried out in etcd: ${reason}`),
      recovered: () => log('info', 'the large change is carried out in etcd')
    })

    this.#taking = new Background({
      work: () => this.#standby?.take() ?? Promise.resolve(),
      retryMs: TAKE_MS,
      failed: reason => log('warn', `nobody writes, and this svcd cannot either so far: ${reason}`)
    })
  }

  async lock(): Promise<void> {
    await this.#writer.acquire()
  }

  /** Who has the right to write, in words; '' where nobody has it. */
  async holder(): Promise<string> {
    const { found } = await transact(this.#client, [], [get(this.#keys.writer)], [], LIMIT_MS)
    return found[0] ? holderIn(found[0].value.toString()).who : ''
  }

  /** The marks of the keys that every controller has to have; undefined before one has kept them. */
  async keyMarks(): Promise<string | undefined> {
    const { found } = await transact(this.#client, [], [get(this.#keys.keyMarks)], [], LIMIT_MS)
    return found[0]?.value.toString()
  }

  /** Throws Error for keys in the state directory that are not those of the controllers that write here. */
  refuseOtherKeys(state: string, kept: string | undefined, isWritten = false): Promise<void> {
    return refuseOtherKeys(state, kept, isWritten, this.#client.etcdctl(`del ${this.#keys.keyMarks}`))
  }

  /** Keeps the marks of the keys in the state directory of who writes, where there are none. Throws Error where there are others. */
  async keepKeyMarks(state: string): Promise<void> {
    const at = this.#keys.keyMarks
    const marks = JSON.stringify(await marksIn(state))
    const { revision } = this.#writer
    const { succeeded, found } = await this.#patiently(() =>
      this.#once(revision, [holds(at, undefined)], [put(at, marks)], [get(at)])
    )
    if (succeeded) return
    if (!found[0]) this.#lost()
    await this.refuseOtherKeys(state, found[0].value.toString())
  }

  /**
   * What who joins has to know: whether objects are stored, which controllers are there, and which files are the keys of theirs.
   */
  async site() {
    const layout = get(this.#keys.object(LAYOUT, VERSION))
    const asked = [layout, get(this.#keys.intent), get(this.#keys.keyMarks)]
    const { found } = await transact(this.#client, [], asked, [], LIMIT_MS)
    const [version, intent, marks] = found
    return {
      hasObjects: version !== undefined || intent !== undefined,
      controllers: await controllersAt(this.#client, this.#keys),
      compared: (files: ReadonlyMap<string, Buffer>) => compared(files, marks?.value.toString())
    }
  }

  async read(): Promise<StoredKeys> {
    this.stored = await StoredKeys.read(this.#client, this.#keys)
    return this.stored
  }

  /** Notes in the state directory that its svcd has its objects in etcd: `refuseForgotten` goes by that. */
  async noteUse(state: string): Promise<void> {
    await createOnce(join(state, USED), USED_TEXT)
  }

  /**
   * Throws Error with the way out where nothing was stored here when it was read, and a state directory shows that there were objects,
   * in etcd or in its files: they would be forgotten in silence.
   */
  async refuseForgotten(state: string): Promise<void> {
    // The first thing that is stored, in one commit with all that is copied.
    if (this.stored?.text(LAYOUT, VERSION) !== undefined) return
    const used = join(state, USED)
    if (await exists(used))
      throw new Error(
        `${this.place()} holds nothing, and this svcd has had its objects in etcd: look at [store] endpoints and prefix. ` +
          'Where the objects are in files again, this svcd must not run on etcd: set medium = files on the one that has them, and ' +
          'type systemctl disable --now svcd on the others. Where they are lost, restore a backup (svcd restore FILE), or copy ' +
          `those of ${state}, if they are there and the right ones (svcd store copy files etcd). To begin anew, without objects, ` +
          `remove ${used}`
      )
    if (!(await exists(join(state, LAYOUT, `${VERSION}.json`)))) return
    throw new Error(
      `${state} holds objects, and ${this.place()} holds none: type svcd store copy files etcd; to begin without these ` +
        `objects, move ${state}/${LAYOUT} away`
    )
  }

  /** Where an object is, or all, for messages. */
  place(type?: string, name = ''): string {
    return `etcd at ${this.#client.where}: ${type === undefined ? this.#keys.prefix : this.#keys.object(type, name)}`
  }

  async start(_types: Iterable<string>, followed?: Followed): Promise<void> {
    this.#followed = followed
    this.#loadRecords()
    await this.#begin(this.#writer.revision, this.stored)
    this.stored = undefined
  }

  follow(followed: Followed): void {
    this.#followed = followed
    this.#log('info', FOLLOWS)
    this.#loadRecords()
    this.#stand(this.stored)
    this.stored = undefined
  }

  get following(): string {
    return this.#standby?.following ?? ''
  }

  get writer(): Reached | undefined {
    return this.#standby?.writer
  }

  get standing(): Standing {
    const known = commitsIn(this.#head)
    if (!this.#standby) {
      const { doubtMs } = this.#writer
      return { role: doubtMs === 0 ? 'primary' : 'unknown', revision: known, lag_ms: Math.ceil(doubtMs) }
    }
    // Who was overtaken knows what it wrote itself before it has read the rest.
    const { revision, lagMs } = this.#standby
    return { role: 'standby', revision: Math.max(revision, known), lag_ms: Math.round(lagMs) }
  }

  get others(): readonly Controller[] {
    return this.#controllers?.others ?? []
  }

  join(self: Controller): void {
    this.#controllers = new Controllers({
      client: this.#client,
      keys: this.#keys,
      ttlSeconds: this.#ttlMs / 1000,
      self: { ...self, ...(this.#url === '' ? {} : { url: this.#url }) },
      log: this.#log
    })
  }

  /** Nobody has opened them so far. */
  #loadRecords(): void {
    if (this.stored) atOnce(this.records.loading(this.stored.records))
  }

  /** Begins to write, by the right of this revision, where what is stored is known. */
  async #begin(revision: string, stored: Unfinished | undefined): Promise<void> {
    const { head, intent, abandoned = [] } = stored ?? {}
    this.#head = head
    this.#unclear = undefined
    this.#intent = intent
    this.#isOpen = true
    // The head moves on, so that an earlier writer that gets its right back knows of this one, whatever it writes.
    await this.#advance(revision, [], () => [])
    for (const id of abandoned) await this.#fenced([removeAll(this.#keys.stagedBy(id))], revision)
    if (intent) this.#finishing.wake()
  }

  async commit(writes: readonly Revertible[]): Promise<void> {
    if (!this.#isOpen) throw new Error(this.#standby ? OTHER_WRITES : NOT_OPEN)
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

  get problem(): string {
    if (!this.#standby) return this.#writer.problem || this.#finishing.problem
    const { problem, isFree } = this.#standby
    if (problem !== '' || !isFree || this.#taking.problem === '') return problem
    return `nobody writes, and this svcd cannot either so far: ${this.#taking.problem}`
  }

  async close(): Promise<void> {
    this.#isOpen = false
    this.#isClosed = true
    this.#closeBy = performance.now() + CLOSE_MS
    await this.#taking.close()
    this.#isOpen = false
    await this.#standby?.close()
    if (this.#intent) await this.#finishing.run().catch(() => undefined)
    await this.#finishing.close()
    await this.#controllers?.close()
    await this.#writer.close()
    this.#client.close()
  }

  readonly #operation = ({ type, name, text }: Write): JsonObject =>
    text === undefined ? remove(this.#keys.object(type, name)) : put(this.#keys.object(type, name), text)

  /** Takes back what is unclear, and finishes what is unfinished: nothing is written over either. Gives the writer's revision. */
  async #ready(): Promise<string> {
    const { revision } = this.#writer
    if (this.#unclear) await this.#settle(revision)
    if (this.#intent) await this.#finishing.run()
    return revision
  }

  /** Stages the writes, a part at a time; the last key, the intent, commits them. The objects' keys follow. */
  async #commitIntent(revision: string, writes: readonly Revertible[]): Promise<void> {
    const { intent } = this.#keys
    // Never used twice: a request that etcd gets late does nothing to a later change.
    const id = `${revision}-${++this.#staged}`
    const unstage = removeAll(this.#keys.stagedBy(id))
    try {
      for (const part of this.#parts(writes, ({ type, name, text = '' }) =>
        put(this.#keys.stagedObject(id, type, name), text)
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
    const { intent } = this.#keys
    const last = [remove(intent), removeAll(this.#keys.stagedBy(change.id))]
    // A part that etcd gets late, when the intent is gone, must not bring old texts back.
    const isDue = holds(intent, intentText(change))
    const { revision } = this.#writer
    for (const part of this.#parts(change.writes, this.#operation, last)) {
      if (performance.now() > this.#closeBy) throw new Error('shutting down; the next start goes on with it')
      const { succeeded, found } = await this.#patiently(() =>
        this.#once(revision, [isDue], part, [get(intent)])
      )
      if (succeeded) continue
      // The last part was carried out when it was sent before, or another writer has carried all of them out.
      if (found[0] === undefined) break
      this.#lost()
    }
    if (this.#intent === change) this.#intent = undefined
  }

  /** Carries operations out that may be carried out twice, while the right to write is ours. */
  async #fenced(operations: readonly JsonObject[], revision: string): Promise<void> {
    const { succeeded } = await this.#patiently(() => this.#once(revision, [], operations))
    if (!succeeded) this.#lost()
  }

  #keeper(): Keeper {
    const etcd = this
    return {
      get isFollowing() {
        return etcd.#standby !== undefined
      },
      get revision() {
        if (!etcd.#isOpen) throw new Error(etcd.#standby ? OTHER_WRITES : NOT_OPEN)
        return etcd.#writer.revision
      },
      write: (revision, ...parts) => this.#patiently(() => this.#once(revision, ...parts), RECORD_MS),
      lost: () => this.#lost()
    }
  }

  /** One try of a transaction that compares who may write. */
  #once(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[] = []
  ): Promise<Outcome> {
    const compare = [this.#writer.isAt(revision), ...conditions]
    return transact(this.#client, compare, operations, otherwise, LIMIT_MS)
  }

  #lost(): never {
    this.#writer.lost()
    throw new Error(`etcd at ${this.#client.where}: the right to write was lost, and is asked for again`)
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
    const { head } = this.#keys
    const { succeeded, found } = await this.#patiently(() =>
      this.#once(revision, [holds(head, from)], [...operations, put(head, to)], [get(head)])
    )
    // It was done when it was sent before, and the answer was lost.
    if (!succeeded && found[0]?.value.toString() !== to) this.#lost()
  }

  /** Asks again while etcd gives no clear answer. After one such, a refusal says nothing of what was sent before it. */
  async #patiently<R>(ask: () => Promise<R>, patienceMs = this.#patienceMs): Promise<R> {
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
    else if (head !== settled) throw await this.#overtaken()
    this.#head = settled
    this.#unclear = undefined
  }

  /** Whether nobody has written since we could: otherwise memory is not what is stored. */
  async #assertHead(): Promise<void> {
    if (!this.#isOpen) return
    const head = await this.#headNow()
    if (![this.#head, this.#unclear?.to, this.#unclear?.settled].includes(head)) throw await this.#overtaken()
  }

  async #headNow(): Promise<string | undefined> {
    const { found } = await transact(this.#client, [], [get(this.#keys.head)], [], LIMIT_MS)
    return found[0]?.value.toString()
  }

  /** Another one has written, or is about to: what it writes is followed from now on. */
  async #overtaken(): Promise<Error> {
    const reason =
      `etcd at ${this.#client.where}: another svcd writes below ${this.#keys.prefix} since this one lost the right to: ` +
      (this.#followed ? 'this one follows it' : 'start svcd again')
    const ended = this.#writer.end(reason)
    if (this.#followed) {
      this.#log('info', FOLLOWS)
      this.#demoted()
    }
    await ended
    return new Error(reason)
  }

  /** Another one writes, or may: it is followed, and all who go by that are told. */
  #demoted(): void {
    this.#stand()
    this.#followed?.demoted()
    this.records.overtaken()
  }

  /** Follows from what was read, otherwise reads it first. */
  #stand(stored?: StoredKeys): void {
    if (this.#standby || this.#isClosed) return
    this.#isOpen = false
    this.#intent = undefined
    this.#standby = new Standby({
      client: this.#client,
      keys: this.#keys,
      writer: this.#writer,
      followed: this.#followed as Followed,
      records: this.records,
      patienceMs: this.#ttlMs / 2,
      promoted: revision => this.#promoted(revision),
      // After a failure it is tried again by itself, later and later.
      free: () => this.#taking.problem === '' && this.#taking.wake(),
      log: this.#log
    })
    this.#standby.start(stored)
  }

  /** What another one has begun and not finished is taken over too, before anything else is written. */
  async #promoted(revision: string): Promise<void> {
    try {
      await this.#finishing.settled()
      await this.#begin(revision, await StoredKeys.unfinished(this.#client, this.#keys))
      // It may have been lost, and gone to another one, while the last answer was on its way.
      if (this.#writer.revision !== revision) throw new Error('the right to write was lost meanwhile')
      this.#standby = undefined
      this.#log('info', 'this svcd writes now')
      this.records.promoted()
      this.#followed?.promoted()
    } catch (error) {
      this.#standby = undefined
      await this.#writer.end(reasonOf(error))
      this.#demoted()
      throw error
    }
  }
}
