import { setImmediate as nextTurn } from 'node:timers/promises'
import { tryLater } from './errors.js'
import { getOrAdd } from './lists.js'
import { addressBlockOf } from './request-source.js'
import { LONGEST_MS } from './thread.js'

/** Runs `work` on every item, at most `limit` at once. Waits for all started; throws the first failure. */
export async function inParallel<V>(
  items: Iterable<V>,
  limit: number,
  work: (item: V) => Promise<void>
): Promise<void> {
  const left = items[Symbol.iterator]()
  let failure: { error: unknown } | undefined
  const worker = async () => {
    for (let item = left.next(); !item.done && failure === undefined; item = left.next()) {
      try {
        await work(item.value)
      } catch (error) {
        failure ??= { error }
      }
    }
  }
  await Promise.all(Array.from({ length: limit }, worker))
  if (failure !== undefined) throw failure.error
}

/** Maximum time that a slice holds the event loop, unless a single step takes longer. */
const SLICE_MS = 8

/** Runs a generator to its end synchronously. Throws TooManySteps after `steps`. */
export function runSync<R>(work: Generator<unknown, R>, steps = Number.POSITIVE_INFINITY): R {
  for (let i = 0; i <= steps; i++) {
    const step = work.next()
    if (step.done) return step.value
  }
  throw new TooManySteps('too many steps for one turn of the event loop')
}

/** Thrown by `runSync`. */
export class TooManySteps extends Error {
  override readonly name = 'TooManySteps'
}

/** Runs a generator for one slice; returns its last step. */
function slice<R>(work: Generator<unknown, R>): IteratorResult<unknown, R> {
  const untilMs = performance.now() + SLICE_MS
  for (;;) {
    const step = work.next()
    if (step.done || performance.now() >= untilMs) return step
  }
}

/**
 * Runs a generator to its end, one slice per turn of the event loop. For svcd's own work, which waits for no
 * other; work that clients request many times uses `runFairly`.
 */
export async function runSliced<R>(work: Generator<unknown, R>): Promise<R> {
  for (let step = slice(work); ; step = slice(work)) {
    if (step.done) return step.value
    await nextTurn()
  }
}

/** Number of items sorted in a step. */
const SORT_CHUNK = 512

/** Sorts in short steps, with the result of `toSorted`. */
export function* sortInSteps<V>(items: readonly V[], compare: (a: V, b: V) => number): Generator<void, V[]> {
  if (items.length <= SORT_CHUNK) return items.toSorted(compare)
  const half = items.length >> 1
  const [left, right] = [
    yield* sortInSteps(items.slice(0, half), compare),
    yield* sortInSteps(items.slice(half), compare)
  ]
  yield
  const merged: V[] = []
  let [i, j] = [0, 0]
  while (i < left.length && j < right.length) {
    const takesLeft = compare(left[i] as V, right[j] as V) <= 0
    yield void merged.push((takesLeft ? left[i++] : right[j++]) as V)
  }
  for (; i < left.length; i++) yield void merged.push(left[i] as V)
  for (; j < right.length; j++) yield void merged.push(right[j] as V)
  return merged
}

/** Returns the items that pass a test, in short steps. */
export function* filterInSteps<V>(items: readonly V[], test: (item: V) => boolean): Generator<void, V[]> {
  const found: V[] = []
  for (const item of [...items]) {
    yield
    if (test(item)) found.push(item)
  }
  return found
}

/** Turns the steps of some work into pauses of a text that is sent a piece at a time. */
export function* asPauses<R>(work: Generator<unknown, R>): Generator<'', R> {
  for (let step = work.next(); ; step = work.next()) {
    if (step.done) return step.value
    yield ''
  }
}

let sliceEndsMs = 0
let isOpening = false

/** Yields to the event loop, between short steps: those of all callers together take one slice per turn. */
export async function yieldTurn(): Promise<void> {
  // The caller's code runs before the next waiter checks the clock.
  await nextTurn()
  while (performance.now() >= sliceEndsMs) {
    if (!isOpening)
      setImmediate(() => {
        isOpening = false
        sliceEndsMs = performance.now() + SLICE_MS
      })
    isOpening = true
    await nextTurn()
  }
}

/** Runs one task at a time, in the order of calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs `work` after all earlier tasks, with its outcome. */
  run<R>(work: () => Promise<R>): Promise<R> {
    const mine = this.#last.then(work, work)
    this.#last = mine.catch(() => undefined)
    return mine
  }
}

/** A task that waits for a slot. */
interface Waiter {
  grant(): void
  refuse(error: Error): void
}

/** Waiters, taken from each group in turn, and within it from each party. Group: before a slash. */
class FairQueue {
  readonly #groups = new Map<string, Map<string, Set<Waiter>>>()
  length = 0

  of(party: string): number {
    return this.#groups.get(groupOf(party))?.get(party)?.size ?? 0
  }

  add(party: string, one: Waiter): void {
    const group = getOrAdd(this.#groups, groupOf(party), () => new Map<string, Set<Waiter>>())
    getOrAdd(group, party, () => new Set()).add(one)
    this.length++
  }

  remove(party: string, one: Waiter): void {
    const group = this.#groups.get(groupOf(party))
    const those = group?.get(party)
    if (!those?.delete(one)) return
    this.length--
    if (those.size === 0) group?.delete(party)
    if (group?.size === 0) this.#groups.delete(groupOf(party))
  }

  /** Takes the next waiter. Its party and group move to the end of the queue. */
  take(): Waiter | undefined {
    for (const [group, parties] of this.#groups)
      for (const [party, those] of parties)
        for (const one of those) {
          this.remove(party, one)
          if (parties.delete(party)) parties.set(party, those)
          if (this.#groups.delete(group)) this.#groups.set(group, parties)
          return one
        }
    return undefined
  }

  /** Rejects a random waiter of the longest party in the longest group. */
  refuse(error: Error): void {
    const sizeOf = (parties: Map<string, Set<Waiter>>) =>
      [...parties.values()].reduce((sum, { size }) => sum + size, 0)
    const [, parties = []] = oneOf(maximaOf([...this.#groups], ([, parties]) => sizeOf(parties))) ?? []
    const [party, those] = oneOf(maximaOf([...parties], ([, { size }]) => size)) ?? []
    const one = those && oneOf([...those])
    if (party === undefined || !one) return
    this.remove(party, one)
    one.refuse(error)
  }
}

const groupOf = (party: string) => party.replace(/\/.*/, '')

/** The entries with the highest count. */
const maximaOf = <V>(all: readonly V[], count: (one: V) => number): V[] => {
  const counts = all.map(count)
  const largest = Math.max(...counts)
  return all.filter((_, i) => counts[i] === largest)
}

const oneOf = <V>(those: readonly V[]): V | undefined => those[Math.floor(Math.random() * those.length)]

/**
 * Runs at most `limit` tasks at once. Waiting tasks are taken from each party in turn, so that a party with a
 * thousand tasks delays another by at most one of them per slot. A higher rank waits for all lower ones.
 */
export class Semaphore {
  readonly #queues = [new FairQueue(), new FairQueue(), new FairQueue()] as const
  #running = 0

  constructor(private readonly limit: number) {}

  /** The number of waiting tasks of a rank: of all parties, or of one. */
  waiting(rank: 0 | 1 | 2, party?: string): number {
    const queue = this.#queues[rank]
    return party === undefined ? queue.length : queue.of(party)
  }

  /** Makes room: rejects a random task of this rank, of the longest party in the longest group. */
  rejectOne(rank: 0 | 1 | 2, error: Error): void {
    this.#queues[rank].refuse(error)
  }

  /** Takes a slot if one is free, until `release`. */
  tryTake(): boolean {
    if (this.#running >= this.limit) return false
    this.#running++
    return true
  }

  /** Waits for a slot, which `waiter.grant` gets. Returns a function that ends the wait. */
  wait(party: string, waiter: Waiter, rank: 0 | 1 | 2 = 0): () => void {
    this.#queues[rank].add(party, waiter)
    return () => this.#queues[rank].remove(party, waiter)
  }

  /** Takes a slot until `release`: at once if one is free, else when its turn comes. */
  take(party: string, rank: 0 | 1 | 2 = 0): Promise<void> | undefined {
    if (this.tryTake()) return undefined
    return new Promise((grant, refuse) => this.wait(party, { grant, refuse }, rank))
  }

  /** Gives a slot to the next waiter. */
  release(): void {
    const next = this.#queues[0].take() ?? this.#queues[1].take() ?? this.#queues[2].take()
    if (next) next.grant()
    else this.#running--
  }

  /** Runs the task in a slot, which it releases even if it throws. */
  async run<T>(party: string, task: () => Promise<T>, rank: 0 | 1 | 2 = 0): Promise<T> {
    const turn = this.take(party, rank)
    if (turn) await turn
    try {
      return await task()
    } finally {
      this.release()
    }
  }
}

/** Runs at most `limit` short steps in a turn of the event loop, from each party in turn. */
export class PerTurn {
  readonly #slots: Semaphore

  constructor(limit: number) {
    this.#slots = new Semaphore(limit)
  }

  run<R>(party: string, step: () => R): Promise<R> {
    return this.#slots.run(party, async () => {
      const result = step()
      await nextTurn()
      return result
    })
  }
}

const requests = new PerTurn(1)

/** Bounds of started work, which holds its inputs: in all, and per party. */
const started = new Semaphore(64)
const STARTED_PER_PARTY = 4
/** Bounds of waiting work, which holds its bodies: in all, and per party. */
const MOST_WAITING = { all: 512, ofParty: 128 }
const parties = new Map<string, { readonly begun: Semaphore; count: number }>()

/** The source of a request for work, and a signal that aborts when nobody waits any more. */
export interface Requester {
  readonly source: { readonly address: string }
  readonly signal?: AbortSignal
}

/**
 * Like `runSliced`, for requests: together they take one slice per turn of the event loop, in turn from each
 * /24 (IPv6: /64), grouped by /16 (/48). Rejects if the signal aborts first. Throws 503 with Retry-After if
 * too much waits. Without an asker, it is svcd's own work.
 */
export async function runFairly<R>(work: Generator<unknown, R>, asker?: Requester): Promise<R> {
  if (!asker) return runFairTurns(work, '', undefined)
  const name = addressBlockOf(asker.source.address)
  const party = parties.get(name) ?? { begun: new Semaphore(STARTED_PER_PARTY), count: 0 }
  if (party.count >= STARTED_PER_PARTY + MOST_WAITING.ofParty)
    throw tryLater(`${party.count} requests of this network are in progress; try again in 5 s`, 5)
  if (started.waiting(0) >= MOST_WAITING.all)
    throw tryLater(`${MOST_WAITING.all} requests are waiting; try again in 5 s`, 5)
  parties.set(name, party)
  party.count++
  try {
    return await party.begun.run('', () => started.run(name, () => runFairTurns(work, name, asker.signal)))
  } finally {
    if (--party.count === 0) parties.delete(name)
  }
}

async function runFairTurns<R>(
  work: Generator<unknown, R>,
  party: string,
  signal: AbortSignal | undefined
): Promise<R> {
  for (;;) {
    const step = await requests.run(party, () => {
      signal?.throwIfAborted()
      return slice(work)
    })
    if (step.done) return step.value
  }
}

/** Shares work: one run at a time; each caller gets the result of a run that began after the call. */
export function singleFlight<T>(work: () => Promise<T>): () => Promise<T> {
  let current: Promise<unknown> = Promise.resolve()
  let next: Promise<T> | undefined
  return () => {
    if (next) return next
    next = current.then(() => {
      next = undefined
      return work()
    })
    current = next.catch(() => undefined)
    return next
  }
}

/** Returns `make` with a cache: each result lives as long as its object, which must never change. */
export function cachedPerObject<K extends object, V extends {}>(make: (key: K) => V): (key: K) => V {
  const made = new WeakMap<K, V>()
  return key => getOrAdd(made, key, make)
}

/** The shared result of a run, which can be discarded. */
export interface CachedResult<T> {
  get(): Promise<T>
  /** Discards the result, and that of a run under way: later callers get a new one. */
  invalidate(): void
}

/** Like `singleFlight`; reuses a result for `ms` from its start. Setting clock `now` back extends nothing. */
export function cachedFor<T>(
  ms: number,
  work: () => Promise<T>,
  now = () => performance.now()
): CachedResult<T> {
  let made: { readonly result: T; readonly sinceMs: number } | undefined
  let forgotten = 0
  const make = singleFlight(async () => {
    const before = forgotten
    const mine = { sinceMs: now(), result: await work() }
    if (before !== forgotten) return mine.result
    made = mine
    // Frees a large result as soon as it has expired.
    setTimeout(() => {
      if (made === mine) made = undefined
    }, ms).unref()
    return mine.result
  })
  return {
    get: async () => {
      const ageMs = made ? now() - made.sinceMs : -1
      return made && ageMs >= 0 && ageMs < ms ? made.result : make()
    },
    invalidate: () => {
      forgotten++
      made = undefined
    }
  }
}

/**
 * Returns a signal that aborts with another one, or after a time limit with `late`. Call `release` when the
 * work has ended. `AbortSignal.any` would hold its signals weakly: one of `AbortSignal.timeout` may be
 * collected, and never aborts then.
 */
export function timeLimited(
  { signal, timeLimitMs }: { readonly signal?: AbortSignal; readonly timeLimitMs: number },
  late: Error = new DOMException('The operation was aborted due to timeout', 'TimeoutError')
): { readonly signal: AbortSignal; release(): void } {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(late), Math.min(timeLimitMs, LONGEST_MS)).unref()
  const follow = () => controller.abort(signal?.reason)
  if (signal?.aborted) follow()
  signal?.addEventListener('abort', follow)
  const release = () => {
    clearTimeout(timer)
    signal?.removeEventListener('abort', follow)
  }
  return { signal: controller.signal, release }
}
