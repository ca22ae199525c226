import { Background } from '../base/background.js'
import { runSliced, runSync } from '../base/concurrency.js'
import { type Problem, problemText } from '../base/errors.js'
import { LoadError, NotLeaderError, reasonOf, StoreError } from './errors.js'
import type { ReplicationListener, SharedMedium } from './medium.js'
import type { Role } from './role.js'
import {
  backUpBeforeMigration,
  kindsOf,
  removeBroken,
  type Start,
  type StoreOptions,
  startOf
} from './start.js'
import { type Outdated, type State, Transaction } from './state.js'
import type { Change, Doc, Index, Kind, Tx, Types, View } from './types.js'
import { applyReload, applyWrites, coalesced, ObjectWrite, refuseLayout } from './writes.js'

/** A transaction that is not durable yet. */
interface Pending {
  /** Every write in order. */
  readonly steps: readonly Change[]
  /** The net changes, one per object. */
  readonly net: readonly Change[]
  /** The net changes for the medium. */
  readonly writes: readonly ObjectWrite[]
  /** Made in steps while no other change ran: publishing swaps the two states. */
  readonly exclusive?: true
  /** Commits even without writes, to ask the medium. */
  readonly forcesCommit?: true
  resolve(): void
  reject(error: StoreError): void
}

type Listener = (changes: readonly Change[], more: boolean) => void

/** Objects of one commit that listeners receive per turn of the event loop. */
const NOTIFIED_PER_TURN = 500

const PROBE_MS = { first: 1000, longest: 2000 }

/** Objects in memory, each also a JSON text in a medium. All changes go through one transaction function. */
export class Store<T extends Types, I extends Index> {
  readonly #kinds: ReadonlyMap<string, Kind<Doc>>
  #current: State<T, I>
  #next: State<T, I>
  readonly #listeners = new Set<Listener>()
  #queue: Pending[] = []
  #running: Promise<void> | undefined
  #inChange = false
  /** Pending while a change runs in steps; other changes wait for it. */
  #exclusive: Promise<void> | undefined
  #problem = ''
  /** Commits nothing now and then after a failure, so that health recovers even without changes. */
  readonly #probing = new Background({ work: () => this.#committed({}), retryMs: PROBE_MS })
  #closed: Promise<void> | undefined

  private constructor(
    private readonly options: StoreOptions<T, I>,
    { current, stateOf }: Start<T, I>
  ) {
    this.#kinds = kindsOf(options)
    this.#current = current
    const committed = () => this.#current
    this.current = {
      get index() {
        return committed().index
      },
      get: (type, name) => committed().get(type, name),
      names: type => committed().names(type)
    }
    this.#next = stateOf()
  }

  /**
   * Becomes leader, reads and verifies the medium, and finishes what a crash interrupted in the background.
   * Throws the medium's error if another process leads, or LoadError with every problem.
   */
  static async open<T extends Types, I extends Index>(options: StoreOptions<T, I>): Promise<Store<T, I>> {
    const { medium } = options
    await medium.lock()
    return Store.#opened(options, async start => {
      // Last of the steps that may fail for ever: each retry of a start would push out an older copy.
      await backUpBeforeMigration(options, start)
      const store = new Store(options, start)
      await medium.start(kindsOf(options).keys(), store.#replicationListener)
      if (start.migration) await medium.commit(start.migration.state.writes)
      await store.#rewriteOutdated(start.outdated)
      return store
    })
  }

  /**
   * Opens a store without leadership: it reads the medium and follows the leader. Changes throw
   * NotLeaderError until there is no leader; then it becomes leader. Throws LoadError with every problem, and
   * Error for a missing or another layout.
   */
  static follow<T extends Types, I extends Index>(
    options: StoreOptions<T, I> & { medium: SharedMedium }
  ): Promise<Store<T, I>> {
    return Store.#opened(options, async start => {
      if (start.migration)
        throw new Error(
          `${start.place}: the layout of the state is not today's, or nothing is stored yet: who follows ` +
            'changes nothing of that; wait for the svcd that writes, and give all the same release'
        )
      const store = new Store(options, start)
      options.medium.follow(store.#replicationListener)
      return store
    })
  }

  static async #opened<T extends Types, I extends Index>(
    options: StoreOptions<T, I>,
    begin: (start: Start<T, I>) => Promise<Store<T, I>>
  ): Promise<Store<T, I>> {
    const { medium, log = () => {} } = options
    try {
      const start = startOf(options, await medium.read())
      if (start.problems.length > 0) {
        if (!options.onDamage || !('follow' in medium)) throw new LoadError(start.problems)
        removeBroken(options, start)
        await options.beforeFirstWrite?.(start.current)
        options.onDamage(start.problems)
        const store = new Store(options, start)
        ;(medium as SharedMedium).follow(store.#replicationListener, false)
        return store
      }
      for (const problem of start.foreign) log('warn', problemText(problem))
      await options.beforeFirstWrite?.(start.current)
      return await begin(start)
    } catch (error) {
      await medium.close()
      throw error
    }
  }

  /**
   * Returns every problem of the stored state, foreign files included, for `svcd check`. Takes no lock,
   * writes nothing, and logs what the start would rewrite. May see half of a running daemon's change.
   */
  static async inspect<T extends Types, I extends Index>(options: StoreOptions<T, I>): Promise<Problem[]> {
    const { outdated, problems, foreign } = startOf(options, await options.medium.read())
    for (const { file, message } of outdated)
      options.log?.('warn', problemText({ file, message: `${message}; the next start writes the file anew` }))
    return [...problems, ...foreign]
  }

  /** The committed objects. Can be kept: it stays current when the states are swapped (`changeInSteps`). */
  readonly current: View<T, I>

  /** Knows who leads. A store that does not lead refuses changes. */
  get role(): Role {
    return this.options.medium.role
  }

  /** Whether changes can be made durable; for a follower, whether it is up to date. `reason` says why not. */
  get health(): { ok: boolean; reason: string } {
    const closed = this.#closed === undefined ? '' : 'shutting down'
    const reason = closed || this.#problem || this.options.medium.problem
    return { ok: reason === '', reason }
  }

  /**
   * Runs `fn` at once, on memory plus the pending changes. Resolves with its result when its changes are
   * durable and visible in `current`, all or none. A throw undoes its writes, and rejects. Both wait for the
   * pending changes that `fn` may have seen, and reject with a StoreError if these fail.
   */
  change<R>(fn: (tx: Tx<T, I>) => R): Promise<R> {
    if (this.#inChange) throw new Error('a change within a change')
    if (this.#exclusive) return this.#exclusive.then(() => this.change(fn))
    return new Promise((resolve, reject) => {
      this.#assertLeader()
      const tx = new Transaction(this.#next)
      let writes: readonly ObjectWrite[] = []
      let done: () => void
      this.#inChange = true
      try {
        const result = fn(tx)
        if (result instanceof Promise) throw new TypeError('the function of a change cannot wait')
        writes = this.#writesOf(tx.changes())
        for (const write of writes) write.encodeNow()
        done = () => resolve(result)
      } catch (error) {
        tx.undo()
        done = () => reject(error)
      } finally {
        this.#inChange = false
      }
      const net = tx.changes()
      if (net.length === 0) tx.undo()
      tx.end()
      if (net.length === 0 && this.#running === undefined) done()
      else this.#push({ steps: tx.steps, net, writes, resolve: done, reject: reject })
    })
  }

  /**
   * Runs `fn` in steps, so that a large change never blocks the event loop for long. It starts when all
   * pending changes are durable; later ones wait for its end. Readers see all of it at once, when it is
   * durable. A throw undoes its writes, and rejects.
   */
  changeInSteps<R>(fn: (tx: Tx<T, I>) => Generator<unknown, R>): Promise<R> {
    return this.#exclusively(async () => {
      this.#assertLeader()
      await this.#running
      return this.#changeSliced(tx => this.#whileOpen(fn(tx)))
    })
  }

  /**
   * Resolves once `current` is known to be what is stored, and no failed change can still be stored: the
   * leader makes an empty commit, which fails if another one leads now; a follower has to be up to date.
   * Throws StoreError if that is unknown.
   */
  async readBarrier(): Promise<void> {
    while (this.#exclusive) await this.#exclusive
    if (!this.role.isLeader) {
      const { ok, reason } = this.health
      if (!ok) throw new StoreError(reason)
      return
    }
    this.#assertLeader()
    await this.#committed({ forcesCommit: true })
  }

  #assertLeader(): void {
    if (this.#closed !== undefined) throw new StoreError('shutting down')
    if (!this.role.isLeader) throw new NotLeaderError()
  }

  async #exclusively<R>(work: () => Promise<R>): Promise<R> {
    while (this.#exclusive) await this.#exclusive
    let ended!: () => void
    this.#exclusive = new Promise(resolve => {
      ended = resolve
    })
    try {
      return await work()
    } finally {
      this.#exclusive = undefined
      ended()
    }
  }

  /** `isStored`: the medium already has the change. */
  async #changeSliced<R>(fn: (tx: Tx<T, I>) => Generator<unknown, R>, isStored = false): Promise<R> {
    const tx = new Transaction(this.#next)
    try {
      const result = await runSliced(fn(tx))
      const net = tx.changes()
      if (net.length === 0) {
        await runSliced(tx.undoing())
        return result
      }
      const steps = [...tx.steps]
      tx.end()
      const writes = isStored ? [] : this.#writesOf(net)
      await this.#committed({ net, writes, exclusive: true })
      await runSliced(replay(steps, this.#next))
      return result
    } catch (error) {
      await runSliced(tx.undoing())
      throw error
    }
  }

  /** The leader's commits become changes in steps, reported like own ones. */
  readonly #replicationListener: ReplicationListener = {
    applyRemote: writes => this.#applyRemote(tx => applyWrites(tx, writes, this.#kinds, this.#place)),
    reload: stored => this.#applyRemote(tx => applyReload(tx, stored, this.#kinds, this.options.verify))
  }

  readonly #place = (type: string, name: string) =>
    this.options.medium.place?.(type, name) ?? `${type} ${name}`

  #applyRemote(fn: (tx: Tx<T, I>) => Generator<void>): Promise<void> {
    const { layout } = this.options
    const place = this.#place
    return this.#exclusively(async () => {
      // Changes that wait for a medium that is no longer ours fail, and are undone.
      await this.#running
      this.#problem = ''
      await this.#changeSliced(function* (tx) {
        yield* fn(tx)
        if (layout) refuseLayout(tx, layout, place)
      }, true)
    })
  }

  /** Yields the steps of `work`, until the store is closed: a stop does not wait for a long change. */
  *#whileOpen<R>(work: Generator<unknown, R>): Generator<unknown, R> {
    for (;;) {
      const step = work.next()
      if (step.done) return step.value
      if (this.#closed !== undefined) throw new StoreError('shutting down')
      yield
    }
  }

  /**
   * Calls `listener` with each commit's changes, in order; `current` shows them, and no other change is made
   * meanwhile. A large change comes in parts, with `more` for all but the last. Returns how to unsubscribe.
   */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Refuses new changes, finishes pending ones, undoes one in steps, and closes the medium. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    await this.#probing.close()
    await this.#exclusive
    await this.#running
    await this.options.medium.close()
  }

  /** Rewrites outdated texts in one commit. A failure is only logged: the next start retries. */
  async #rewriteOutdated(outdated: readonly Outdated[]): Promise<void> {
    const [first, ...others] = outdated
    if (first === undefined) return
    const more = others.length > 0 ? ` (and ${others.length} more files like it)` : ''
    const what = `${problemText(first)}${more}`
    const writes = outdated.map(({ type, name, text: textBefore }) => {
      const doc = this.#current.get(type, name)
      return { type, name, textBefore, text: doc && this.#kinds.get(type)?.encode(doc) }
    })
    try {
      await this.options.medium.commit(writes)
      this.options.log?.('info', `${what}: written anew`)
    } catch (error) {
      this.options.log?.('error', `${what}: it cannot be written anew: ${reasonOf(error)}`)
    }
  }

  #writesOf(changes: readonly Change[]): ObjectWrite[] {
    return changes.map(change => new ObjectWrite(change, this.#kinds.get(change.type) as Kind<Doc>))
  }

  /** Resolves when a transaction without steps is durable. */
  #committed(pending: Partial<Omit<Pending, 'steps'>>): Promise<void> {
    return new Promise((resolve, reject) =>
      this.#push({ steps: [], net: [], writes: [], ...pending, resolve, reject })
    )
  }

  #push(pending: Pending): void {
    this.#queue.push(pending)
    this.#running ??= this.#run()
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      await undefined // changes made later in this turn of the event loop join the batch
      const batch = this.#queue
      this.#queue = []
      try {
        await this.#commit(batch)
      } catch (error) {
        // Changes queued during a failed probe do not build on it: they get their own try.
        const isProbe = batch.every(({ steps }) => steps.length === 0)
        this.#fail(isProbe ? batch : [...batch, ...this.#queue.splice(0)], error)
        continue
      }
      for (const pending of batch)
        if (pending.exclusive) await runSliced(this.#publishing(pending))
        else runSync(this.#publishing(pending))
    }
    this.#running = undefined
  }

  async #commit(batch: readonly Pending[]): Promise<void> {
    const writes = coalesced(batch.map(({ writes }) => writes))
    if (writes.length === 0 && this.#problem === '' && !batch.some(({ forcesCommit }) => forcesCommit)) return
    await this.options.medium.commit(writes)
    if (this.#problem !== '') this.options.log?.('info', 'the store can be changed again')
    this.#problem = ''
  }

  *#publishing({ steps, net, exclusive, resolve }: Pending): Generator<void> {
    // `next` has this change and is otherwise equal to `current`.
    if (exclusive) [this.#current, this.#next] = [this.#next, this.#current]
    for (const { type, name, after } of steps) this.#current.set(type, name, after)
    for (let from = 0; from < net.length; from += NOTIFIED_PER_TURN) {
      if (from > 0) yield
      this.#notify(net.slice(from, from + NOTIFIED_PER_TURN), from + NOTIFIED_PER_TURN < net.length)
    }
    resolve()
  }

  #notify(changes: readonly Change[], more: boolean): void {
    for (const listener of this.#listeners) {
      try {
        listener(changes, more)
      } catch (error) {
        this.options.log?.('error', `after a change of the store: ${reasonOf(error)}`)
      }
    }
  }

  /** Undoes all pending changes, as later ones may build on the failed one. */
  #fail(pending: readonly Pending[], error: unknown): void {
    const reason = reasonOf(error)
    if (this.#problem === '') {
      this.options.log?.('error', `the store cannot be changed: ${reason}`)
      this.#probing.wake(PROBE_MS.first)
    }
    this.#problem = reason
    for (const { steps } of pending.toReversed()) {
      for (const { type, name, before } of steps.toReversed()) this.#next.set(type, name, before)
    }
    for (const { reject } of pending) reject(new StoreError(reason))
  }
}

/** Applies the steps of a change to the other state. */
function* replay<T extends Types, I extends Index>(
  steps: readonly Change[],
  state: State<T, I>
): Generator<void> {
  for (const { type, name, after } of steps) yield state.set(type, name, after)
}
