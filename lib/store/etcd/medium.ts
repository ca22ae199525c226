import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../../base/background.js'
import { runSync } from '../../base/concurrency.js'
import { createOnce, exists } from '../../disk/file.js'
import { runuserPrefix } from '../../program/system.js'
import { reasonOf } from '../errors.js'
import type { Controller, ReplicationListener, Revertible, SharedMedium } from '../medium.js'
import type { LeaderEndpoint, ReplicaStatus, Role, RoleListener } from '../role.js'
import { LAYOUT, VERSION } from '../start.js'
import { Client, type ClientOptions } from './client.js'
import { Commits } from './commits.js'
import { Controllers, listControllers } from './controllers.js'
import { Follower } from './follower.js'
import { compareKeys, fingerprintsIn, refuseOtherKeys } from './key-fingerprints.js'
import { type Etcd, type Keys, keysBelow } from './keys.js'
import { get, hasValue, put, read } from './kv.js'
import { Leadership, leaderIn } from './leadership.js'
import { EtcdRecords, type RecordsMedium } from './records.js'
import { commitsIn, StoredKeys } from './stored.js'

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

/** A member without an answer within this time is reported as silent. */
const SILENT_MS = 3000
/** Backoff of takeovers: each attempt reads everything that is stored. */
const TAKEOVER_BACKOFF_MS = { first: 500, longest: 30_000 }
/** Short, because nothing is lost if a report is not stored: the node is asked to retry. */
const RECORD_MS = 2000

/** Marker file in the state directory of a controller that has had its objects in etcd. */
const MARKER_FILE = 'objects-in-etcd'
const MARKER_TEXT =
  'This svcd has its objects in etcd. While this file is here, ' +
  'it does not begin on an etcd that holds nothing.\n'

const OTHER_WRITES = 'another controller writes'
const NOT_OPEN = 'the store is not open for changes'
const FOLLOWS = 'this svcd does not write: it follows the one that does'

/** The store in etcd: the leader commits, followers replicate until they lead themselves. */
export class EtcdMedium implements SharedMedium, Role {
  readonly role: Role = this
  readonly #client: Client
  readonly #keys: Keys
  readonly #etcd: Etcd
  readonly #leadership: Leadership
  readonly #ttlMs: number
  readonly #url: string
  readonly #log: NonNullable<EtcdOptions['log']>
  /** The authorities of etcd in PEM form, which may also have issued the controllers' certificates. */
  readonly ca: Buffer | undefined
  readonly #commits: Commits
  /** The result of `read`, dropped by `start`. */
  stored: StoredKeys | undefined
  /** Receives the commits of others after a loss of leadership. */
  #listener: ReplicationListener | undefined
  /** Set while another controller leads. */
  #follower: Follower | undefined
  /** Outlives the followers, because a failed takeover creates a new one. */
  readonly #takingOver: Background
  #controllers: Controllers | undefined
  readonly #roleListeners: RoleListener[] = []
  /** The records of nodes and requests, which are no objects. */
  readonly records: EtcdRecords
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
    this.#keys = keysBelow(prefix)
    this.#ttlMs = ttlSeconds * 1000
    this.#url = url
    this.#log = log
    this.#etcd = { client: this.#client, keys: this.#keys, log }
    this.records = new EtcdRecords({ ...this.#etcd, keeper: this.#recordsMedium() })
    this.#leadership = new Leadership({
      client: this.#client,
      key: this.#keys.leader,
      ttlSeconds,
      url,
      log,
      reacquired: revision => this.#commits.assertHead(revision),
      steppedDown: async reason => {
        if (!this.#listener || !this.#commits.isOpen) throw new Error(reason)
        throw await this.#superseded()
      }
    })
    this.#commits = new Commits({
      ...this.#etcd,
      ...{ leadership: this.#leadership, patienceMs },
      stepDown: () => this.#superseded()
    })
    this.#takingOver = new Background({
      work: () => this.#takeOver(),
      retryMs: TAKEOVER_BACKOFF_MS,
      onFailure: reason => log('warn', `nobody writes, and this svcd cannot either so far: ${reason}`)
    })
  }

  async lock(): Promise<void> {
    await this.#leadership.acquire()
  }

  /** Returns a description of the leader; '' if there is none. */
  async describeLeader(): Promise<string> {
    const [leader] = await read(this.#client, this.#keys.leader)
    return leader ? leaderIn(leader.value.toString()).who : ''
  }

  /** Returns the fingerprints of the keys that all controllers share; undefined before any are stored. */
  async keyFingerprints(): Promise<string | undefined> {
    const [marks] = await read(this.#client, this.#keys.keyFingerprints)
    return marks?.value.toString()
  }

  /** Throws Error if the keys in the state directory differ from those of the controllers of this store. */
  refuseOtherKeys(state: string, kept: string | undefined, isWritten = false): Promise<void> {
    return refuseOtherKeys(state, kept, isWritten, this.#client.etcdctl(`del ${this.#keys.keyFingerprints}`))
  }

  /** Stores the fingerprints of the leader's keys if there are none. Throws Error if others are stored. */
  async storeKeyFingerprints(state: string): Promise<void> {
    const at = this.#keys.keyFingerprints
    const marks = JSON.stringify(await fingerprintsIn(state))
    const { fencingToken } = this.#leadership
    const { succeeded, found } = await this.#commits.write(
      fencingToken,
      [hasValue(at, undefined)],
      [put(at, marks)],
      [get(at)]
    )
    if (succeeded) return
    if (!found[0]) this.#commits.leadershipLost(fencingToken)
    await this.refuseOtherKeys(state, found[0].value.toString())
  }

  /**
   * Tells a joining controller whether objects are stored, which controllers exist, with their clocks
   * compared to `now`, and how its key files compare with theirs.
   */
  async site(now = Date.now()) {
    const { intent: ofIntent, keyFingerprints } = this.#keys
    const layout = this.#keys.object(LAYOUT, VERSION)
    const [version, intent, marks] = await read(this.#client, layout, ofIntent, keyFingerprints)
    return {
      hasObjects: version !== undefined || intent !== undefined,
      controllers: await listControllers(this.#client, this.#keys, now),
      compared: (files: ReadonlyMap<string, Buffer>) => compareKeys(files, marks?.value.toString())
    }
  }

  /** Returns the endpoints that do not answer, with the reason, and the number of endpoints. */
  async silentEndpoints() {
    const found = await this.#client.silentEndpoints(SILENT_MS)
    const [full] = found.filter(({ isFull }) => isFull)
    return { silent: found.filter(({ isFull }) => !isFull), full, of: this.#client.endpointCount }
  }

  async read(): Promise<StoredKeys> {
    this.stored = await StoredKeys.read(this.#client, this.#keys)
    return this.stored
  }

  /** Notes in the state directory that the objects are in etcd, for `refuseEmptyStore`. */
  async writeMarker(state: string): Promise<void> {
    await createOnce(join(state, MARKER_FILE), MARKER_TEXT)
  }

  /** Throws Error if the store was empty when read, but the state directory shows that there were objects. */
  async refuseEmptyStore(state: string): Promise<void> {
    if (this.stored?.isEmpty === false) return
    const copy = async () => `${await runuserPrefix(state)}svcd store copy files etcd`
    const used = join(state, MARKER_FILE)
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
      `etcd at ${this.#client.endpointsText}: ` +
      `${type === undefined ? this.#keys.prefix : this.#keys.object(type, name)}`
    )
  }

  async start(_types: Iterable<string>, listener?: ReplicationListener): Promise<void> {
    this.#listener = listener && this.#guardedListener(listener)
    this.#loadRecords()
    await this.#commits.begin(this.#leadership.fencingToken, this.stored)
    this.stored = undefined
  }

  follow(listener: ReplicationListener, isWhole = true): void {
    this.#listener = this.#guardedListener(listener)
    this.#log('info', FOLLOWS)
    this.#loadRecords()
    if (!isWhole) void this.#leadership.resign('what is stored cannot be read whole')
    this.#startFollowing(isWhole ? this.stored : undefined)
    this.stored = undefined
  }

  /** Wraps the listener: refuses to load an etcd that was emptied, and logs when changes were lost. */
  #guardedListener(listener: ReplicationListener): ReplicationListener {
    const reload = async (stored: StoredKeys) => {
      const { revision: known } = this.status
      // A daemon that has joined has stored a layout.
      if (stored.isEmpty && (stored.head === undefined || this.#controllers))
        throw new Error(
          `${this.place()} holds nothing any more: its keys were removed, or another etcd answers. Nothing ` +
            'is written, and machines are booted from memory for as long as this svcd runs. To mend it: ' +
            'stop svcd on all controllers, and restore a snapshot of etcd, or a backup (svcd restore FILE ' +
            'prints what comes next)'
        )
      await listener.reload(stored)
      const last = commitsIn(stored.head)
      if (last < known)
        this.#log(
          'warn',
          `${this.place()} has ${last} as its last change, and this svcd knew of ${known}: etcd was ` +
            'restored from an older snapshot, or lost what it had. Later changes and reports are lost'
        )
    }
    return { ...listener, reload }
  }

  get isLeader(): boolean {
    return this.#follower === undefined
  }

  get following(): string {
    if (!this.#follower) return ''
    const { leader, isLeaderless } = this.#follower
    const who = isLeaderless ? 'nobody for the moment, try again soon' : (leader?.who ?? 'another svcd')
    return `etcd at ${this.#client.endpointsText}: what is below ${this.#keys.prefix} is written by ${who}`
  }

  get leader(): LeaderEndpoint | undefined {
    const leader = this.#follower?.leader
    return leader?.url ? leader : undefined
  }

  get fencingToken(): string | undefined {
    return this.#follower ? undefined : this.#leadership.token
  }

  subscribe(listener: RoleListener): void {
    this.#roleListeners.push(listener)
  }

  get status(): ReplicaStatus {
    const known = this.#commits.lastNumber
    if (!this.#follower) {
      const { unconfirmedMs } = this.#leadership
      return {
        role: unconfirmedMs === 0 ? 'primary' : 'unknown',
        revision: known,
        lag_ms: Math.ceil(unconfirmedMs)
      }
    }
    // After losing leadership, our own last commit counts until the rest was read.
    const { lastCommit, lagMs } = this.#follower
    return { role: 'standby', revision: lastCommit || known, lag_ms: Math.round(lagMs) }
  }

  /** The other controllers that share the medium. */
  get others(): readonly Controller[] {
    return this.#controllers?.others ?? []
  }

  /** Whether the other controllers were listed since the start. */
  get isListed(): boolean {
    return this.#controllers?.others !== undefined
  }

  /** Describes another controller with our name, and what to do; '' if there is none. */
  get duplicateName(): string {
    return this.#controllers?.duplicateName ?? ''
  }

  /**
   * Announces this controller to the others from now on, and lists them. `now`: its clock, milliseconds since
   * 1970; `trees`: as in Controller, asked each time.
   */
  join(self: Controller, now: () => number, trees: () => readonly string[] = () => []): void {
    // A controller that has come so far has stored a layout, and does not write where the objects were
    // removed.
    this.#leadership.lastWrites.set(this.#keys.object(LAYOUT, VERSION), '1')
    this.#controllers = new Controllers({
      ...this.#etcd,
      ttlSeconds: this.#ttlMs / 1000,
      self: { ...self, ...(this.#url === '' ? {} : { url: this.#url }) },
      ...{ now, trees }
    })
  }

  /** Runs in one go: no records are open yet. */
  #loadRecords(): void {
    if (this.stored) runSync(this.records.loading(this.stored.records))
  }

  async commit(writes: readonly Revertible[]): Promise<void> {
    this.#assertOpen()
    await this.#commits.commit(writes)
  }

  #assertOpen(): void {
    if (!this.#commits.isOpen) throw new Error(this.#follower ? OTHER_WRITES : NOT_OPEN)
  }

  get problem(): string {
    if (!this.#follower)
      return this.#leadership.problem || this.#leadership.noRoomReason || this.#commits.problem
    const { problem, isLeaderless } = this.#follower
    if (problem !== '' || !isLeaderless || this.#takingOver.problem === '') return problem
    return `nobody writes, and this svcd cannot either so far: ${this.#takingOver.problem}`
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#commits.stop()
    await this.#takingOver.close()
    await this.#commits.close()
    await this.#follower?.close()
    await this.#controllers?.close()
    await this.#leadership.close()
    this.#client.close()
  }

  #recordsMedium(): RecordsMedium {
    const etcd = this
    return {
      get isReadOnly() {
        return !etcd.isLeader
      },
      get fencingToken() {
        etcd.#assertOpen()
        return etcd.#leadership.fencingToken
      },
      write: (revision, ...parts) => this.#commits.write(revision, ...parts, RECORD_MS),
      leadershipLost: revision => this.#commits.leadershipLost(revision)
    }
  }

  /** Another controller has written, or is about to: steps down and follows it. */
  async #superseded(): Promise<Error> {
    const reason =
      `${this.place()} is not what this svcd wrote last: another one writes, or etcd was restored or ` +
      'emptied: ' +
      (this.#listener ? 'this one follows it' : 'start svcd again')
    const ended = this.#leadership.resign(reason)
    if (this.#listener) {
      this.#log('warn', reason)
      this.#log('info', FOLLOWS)
      this.#stepDown()
    }
    await ended
    return new Error(reason)
  }

  /** Follows another controller, and notifies the listeners. */
  #stepDown(): void {
    this.#startFollowing()
    for (const listener of this.#roleListeners) listener.steppedDown?.()
  }

  /** Follows from `stored`, or reads it first. */
  #startFollowing(stored?: StoredKeys): void {
    if (this.#follower || this.#isClosed) return
    this.#commits.end()
    this.#follower = new Follower({
      ...this.#etcd,
      listener: this.#listener as ReplicationListener,
      records: this.records,
      // After a failure, `#takingOver` retries with backoff.
      onLeaderless: () => this.#takingOver.problem === '' && this.#takingOver.wake()
    })
    this.#follower.start(stored)
  }

  /** Becomes leader if there is none. */
  async #takeOver(): Promise<void> {
    const follower = this.#follower
    if (!follower) return
    const patienceMs = this.#ttlMs / 2
    // The leadership key is watched too: once it arrives, everything written before it has arrived.
    const revision = await this.#leadership.campaign(made =>
      Promise.race([
        follower.waitForRevision(made),
        sleep(patienceMs, undefined, { ref: false }).then(() => {
          throw new Error(`what was written before was not heard within ${patienceMs / 1000} s`)
        })
      ])
    )
    if (revision === undefined) return
    await follower.close()
    await this.#becomeLeader(revision, follower.lastCommit)
  }

  /** Completes the predecessor's unfinished change before it writes anything else. */
  async #becomeLeader(revision: string, commits: number): Promise<void> {
    try {
      await this.#commits.settled()
      const unfinished = await StoredKeys.unfinished(this.#client, this.#keys)
      if (commitsIn(unfinished.head) !== commits) throw new Error(`${this.#keys.head} is not what was heard`)
      await this.#commits.begin(revision, unfinished)
      // The lease may have been lost to another controller while the last answer was on its way.
      if (this.#leadership.fencingToken !== revision) throw new Error('the leadership was lost meanwhile')
      this.#follower = undefined
      this.#log('info', 'this svcd writes now')
      this.records.becameLeader()
      for (const listener of this.#roleListeners) listener.becameLeader?.()
    } catch (error) {
      this.#follower = undefined
      await this.#leadership.resign(reasonOf(error))
      this.#stepDown()
      throw error
    }
  }
}
