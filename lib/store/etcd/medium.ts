import { join } from 'node:path'
import { Background } from '../../background.js'
import { atOnce } from '../../concurrency.js'
import { createOnce, exists } from '../../disk/file.js'
import { asOwnerOf } from '../../disk/printable.js'
import { reasonOf } from '../errors.js'
import type { Controller, Followed, Reached, Revertible, SharedMedium, Standing } from '../medium.js'
import { LAYOUT, VERSION } from '../start.js'
import { Client, type ClientOptions } from './client.js'
import { Commits } from './commits.js'
import { Controllers, controllersAt } from './controllers.js'
import { compared, marksIn, refuseOtherKeys } from './key-marks.js'
import { Keys } from './keys.js'
import { get, holds, put, transact } from './kv.js'
import type { Keeper } from './shared-records.js'
import { Standby } from './standby.js'
import { AllRecords, commitsIn, StoredKeys } from './stored.js'
import { holderIn, Writer } from './writer.js'

export interface EtcdOptions extends ClientOptions {
  /** Prefix of all keys. Default /svcd/. */
  readonly prefix?: string
  /** Time to live of the lease of the leader: 1 to 60. Default 3. */
  readonly ttlSeconds?: number
  /** The URL at which other controllers reach this one. Default '': none. */
  readonly url?: string
  /** A commit is retried for this long while etcd does not answer. Default 5000. */
  readonly patienceMs?: number
  readonly log?: (level: 'warn' | 'info', message: string) => void
}

/** Time limit of a request, all hedged tries included. */
const LIMIT_MS = 2000
/** A member without an answer within this time is reported as silent. */
const SILENT_MS = 3000
/** Backoff of takeovers: each attempt reads everything that is stored. */
const TAKE_MS = { first: 500, longest: 30_000 }
/** Short, because nothing is lost if a report is not stored: the node is asked to retry. */
const RECORD_MS = 2000

/** Marker file in the state directory of a controller that has had its objects in etcd. */
const USED = 'objects-in-etcd'
const USED_TEXT =
  'This svcd has its objects in etcd. While this file is here, ' +
  'it does not begin on an etcd that holds nothing.\n'

const OTHER_WRITES = 'another controller writes'
const NOT_OPEN = 'the store is not open for changes'
const FOLLOWS = 'this svcd does not write: it follows the one that does'

/** The store in etcd: the leader commits, followers replicate until they lead themselves. */
export class Etcd implements SharedMedium {
  readonly #client: Client
  readonly #keys: Keys
  readonly #writer: Writer
  readonly #ttlMs: number
  readonly #url: string
  readonly #log: NonNullable<EtcdOptions['log']>
  /** The authorities of etcd in PEM form, which may also have issued the controllers' certificates. */
  readonly ca: Buffer | undefined
  readonly #commits: Commits
  /** The result of `read`, dropped by `start`. */
  stored: StoredKeys | undefined
  /** Receives the commits of others after a loss of leadership. */
  #followed: Followed | undefined
  /** Set while another controller leads. */
  #standby: Standby | undefined
  /** Outlives the standbys, because a failed takeover creates a new one. */
  readonly #taking: Background
  #controllers: Controllers | undefined
  /** The records of nodes and requests, which are no objects. */
  readonly records: AllRecords
  #isClosed = false

  constructor({
    prefix = '/svcd/',
    ttlSeconds = 3,
    url = '',
    patienceMs = 5000,
    log = () => {},
    ...reached
  }: EtcdOptions) {
    this.#client = new Client(reached)
    this.ca = reached.tls?.ca
    this.#keys = new Keys(prefix)
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
      regained: revision => this.#commits.assertHead(revision),
      overtaken: async reason => {
        if (!this.#followed || !this.#commits.isOpen) throw new Error(reason)
        throw await this.#overtaken()
      }
    })
    this.#commits = new Commits({
      client: this.#client,
      keys: this.#keys,
      writer: this.#writer,
      patienceMs,
      overtaken: () => this.#overtaken(),
      log
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

  /** Returns a description of the leader; '' if there is none. */
  async holder(): Promise<string> {
    const { found } = await transact(this.#client, [], [get(this.#keys.writer)], [], LIMIT_MS)
    return found[0] ? holderIn(found[0].value.toString()).who : ''
  }

  /** Returns the fingerprints of the keys that all controllers share; undefined before any are stored. */
  async keyMarks(): Promise<string | undefined> {
    const { found } = await transact(this.#client, [], [get(this.#keys.keyMarks)], [], LIMIT_MS)
    return found[0]?.value.toString()
  }

  /** Throws Error if the keys in the state directory differ from those of the controllers of this store. */
  refuseOtherKeys(state: string, kept: string | undefined, isWritten = false): Promise<void> {
    return refuseOtherKeys(state, kept, isWritten, this.#client.etcdctl(`del ${this.#keys.keyMarks}`))
  }

  /** Stores the fingerprints of the leader's keys if there are none. Throws Error if others are stored. */
  async keepKeyMarks(state: string): Promise<void> {
    const at = this.#keys.keyMarks
    const marks = JSON.stringify(await marksIn(state))
    const { revision } = this.#writer
    const { succeeded, found } = await this.#commits.write(
      revision,
      [holds(at, undefined)],
      [put(at, marks)],
      [get(at)]
    )
    if (succeeded) return
    if (!found[0]) this.#commits.lost(revision)
    await this.refuseOtherKeys(state, found[0].value.toString())
  }

  /**
   * Tells a joining controller whether objects are stored, which controllers exist, with their clocks
   * compared to `now`, and how its key files compare with theirs.
   */
  async site(now = Date.now()) {
    const layout = get(this.#keys.object(LAYOUT, VERSION))
    const asked = [layout, get(this.#keys.intent), get(this.#keys.keyMarks)]
    const { found } = await transact(this.#client, [], asked, [], LIMIT_MS)
    const [version, intent, marks] = found
    return {
      hasObjects: version !== undefined || intent !== undefined,
      controllers: await controllersAt(this.#client, this.#keys, now),
      compared: (files: ReadonlyMap<string, Buffer>) => compared(files, marks?.value.toString())
    }
  }

  /** Returns the endpoints that do not answer, with the reason, and the number of endpoints. */
  async silent() {
    const found = await this.#client.silent(SILENT_MS)
    const [full] = found.filter(({ isFull }) => isFull)
    return { silent: found.filter(({ isFull }) => !isFull), full, of: this.#client.endpoints }
  }

  async read(): Promise<StoredKeys> {
    this.stored = await StoredKeys.read(this.#client, this.#keys)
    return this.stored
  }

  /** Notes in the state directory that the objects are in etcd, for `refuseForgotten`. */
  async noteUse(state: string): Promise<void> {
    await createOnce(join(state, USED), USED_TEXT)
  }

  /**
   * Throws Error if the store was empty when read, but a state directory shows that there were objects, in
   * etcd or in its files: they would be lost silently.
   */
  async refuseForgotten(state: string): Promise<void> {
    if (this.stored?.isEmpty === false) return
    const copy = async () => `${await asOwnerOf(state)}svcd store copy files etcd`
    const used = join(state, USED)
    if (await exists(used))
      throw new Error(
        `${this.place()} holds nothing, and this svcd has had its objects in etcd: look at [store] ` +
          'endpoints and prefix. Where the objects are in files again, this svcd must not run on etcd: set ' +
          'medium = files on the one that has them, and type systemctl disable --now svcd on the others. ' +
          `Where they are lost, restore a backup (svcd restore FILE), or copy those of ${state}, if they ` +
          `are there and the right ones (${await copy()}). To begin anew, without objects, remove ${used}`
      )
    if (!(await exists(join(state, LAYOUT, `${VERSION}.json`)))) return
    throw new Error(
      `${state} holds objects, and ${this.place()} holds none: type ${await copy()}; to begin without ` +
        `these objects, move ${state}/${LAYOUT} away`
    )
  }

  /** Describes the location of an object, or of all, for messages. */
  place(type?: string, name = ''): string {
    return (
      `etcd at ${this.#client.where}: ` +
      `${type === undefined ? this.#keys.prefix : this.#keys.object(type, name)}`
    )
  }

  async start(_types: Iterable<string>, followed?: Followed): Promise<void> {
    this.#followed = followed && this.#toldBy(followed)
    this.#loadRecords()
    await this.#commits.begin(this.#writer.revision, this.stored)
    this.stored = undefined
  }

  follow(followed: Followed, isWhole = true): void {
    this.#followed = this.#toldBy(followed)
    this.#log('info', FOLLOWS)
    this.#loadRecords()
    if (!isWhole) void this.#writer.end('what is stored cannot be read whole')
    this.#stand(isWhole ? this.stored : undefined)
    this.stored = undefined
  }

  /** Wraps the listener: refuses to load an etcd that was emptied, and logs when changes were lost. */
  #toldBy(followed: Followed): Followed {
    const reload = async (stored: StoredKeys) => {
      const { revision: known } = this.standing
      // A daemon that has joined has stored a layout.
      if (stored.isEmpty && (stored.head === undefined || this.#controllers))
        throw new Error(
          `${this.place()} holds nothing any more: its keys were removed, or another etcd answers. Nothing ` +
            'is written, and machines are booted from memory for as long as this svcd runs. To mend it: ' +
            'stop svcd on all controllers, and restore a snapshot of etcd, or a backup (svcd restore FILE ' +
            'prints what comes next)'
        )
      await followed.reload(stored)
      const last = commitsIn(stored.head)
      if (last < known)
        this.#log(
          'warn',
          `${this.place()} has ${last} as its last change, and this svcd knew of ${known}: etcd was ` +
            'restored from an older snapshot, or lost what it had. Later changes and reports are lost'
        )
    }
    return { ...followed, reload }
  }

  get isFollowing(): boolean {
    return this.#standby !== undefined
  }

  get following(): string {
    return this.#standby?.following ?? ''
  }

  get writer(): Reached | undefined {
    return this.#standby?.writer
  }

  get right(): string | undefined {
    return this.#standby ? undefined : this.#writer.right
  }

  get standing(): Standing {
    const known = this.#commits.number
    if (!this.#standby) {
      const { doubtMs } = this.#writer
      return { role: doubtMs === 0 ? 'primary' : 'unknown', revision: known, lag_ms: Math.ceil(doubtMs) }
    }
    // After losing leadership, our own last commit counts until the rest was read.
    const { revision, lagMs } = this.#standby
    return { role: 'standby', revision: revision || known, lag_ms: Math.round(lagMs) }
  }

  get others(): readonly Controller[] {
    return this.#controllers?.others ?? []
  }

  /** Whether the other controllers were listed since the start. */
  get isListed(): boolean {
    return this.#controllers?.others !== undefined
  }

  get namesake(): string {
    return this.#controllers?.namesake ?? ''
  }

  join(self: Controller, now: () => number, trees: () => readonly string[] = () => []): void {
    // A controller that has come so far has stored a layout, and does not write where the objects were removed.
    this.#writer.since.set(this.#keys.object(LAYOUT, VERSION), '1')
    this.#controllers = new Controllers({
      client: this.#client,
      keys: this.#keys,
      ttlSeconds: this.#ttlMs / 1000,
      self: { ...self, ...(this.#url === '' ? {} : { url: this.#url }) },
      ...{ now, trees },
      log: this.#log
    })
  }

  /** Runs in one go: no records are open yet. */
  #loadRecords(): void {
    if (this.stored) atOnce(this.records.loading(this.stored.records))
  }

  async commit(writes: readonly Revertible[]): Promise<void> {
    this.#assertOpen()
    await this.#commits.commit(writes)
  }

  #assertOpen(): void {
    if (!this.#commits.isOpen) throw new Error(this.#standby ? OTHER_WRITES : NOT_OPEN)
  }

  get problem(): string {
    if (!this.#standby) return this.#writer.problem || this.#writer.full || this.#commits.problem
    const { problem, isFree } = this.#standby
    if (problem !== '' || !isFree || this.#taking.problem === '') return problem
    return `nobody writes, and this svcd cannot either so far: ${this.#taking.problem}`
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#commits.stop()
    await this.#taking.close()
    await this.#commits.close()
    await this.#standby?.close()
    await this.#controllers?.close()
    await this.#writer.close()
    this.#client.close()
  }

  #keeper(): Keeper {
    const etcd = this
    return {
      get isFollowing() {
        return etcd.#standby !== undefined
      },
      get revision() {
        etcd.#assertOpen()
        return etcd.#writer.revision
      },
      write: (revision, ...parts) => this.#commits.write(revision, ...parts, RECORD_MS),
      lost: revision => this.#commits.lost(revision)
    }
  }

  /** Another controller has written, or is about to: steps down and follows it. */
  async #overtaken(): Promise<Error> {
    const reason =
      `${this.place()} is not what this svcd wrote last: another one writes, or etcd was restored or ` +
      'emptied: ' +
      (this.#followed ? 'this one follows it' : 'start svcd again')
    const ended = this.#writer.end(reason)
    if (this.#followed) {
      this.#log('warn', reason)
      this.#log('info', FOLLOWS)
      this.#demoted()
    }
    await ended
    return new Error(reason)
  }

  /** Follows another controller, and notifies the listeners. */
  #demoted(): void {
    this.#stand()
    this.#followed?.demoted()
    this.records.overtaken()
  }

  /** Follows from `stored`, or reads it first. */
  #stand(stored?: StoredKeys): void {
    if (this.#standby || this.#isClosed) return
    this.#commits.end()
    this.#standby = new Standby({
      client: this.#client,
      keys: this.#keys,
      writer: this.#writer,
      followed: this.#followed as Followed,
      records: this.records,
      patienceMs: this.#ttlMs / 2,
      promoted: (revision, commits) => this.#promoted(revision, commits),
      // After a failure, `#taking` retries with backoff.
      free: () => this.#taking.problem === '' && this.#taking.wake(),
      log: this.#log
    })
    this.#standby.start(stored)
  }

  /** Completes the predecessor's unfinished change before it writes anything else. */
  async #promoted(revision: string, commits: number): Promise<void> {
    try {
      await this.#commits.settled()
      const unfinished = await StoredKeys.unfinished(this.#client, this.#keys)
      if (commitsIn(unfinished.head) !== commits) throw new Error(`${this.#keys.head} is not what was heard`)
      await this.#commits.begin(revision, unfinished)
      // The lease may have been lost to another controller while the last answer was on its way.
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
