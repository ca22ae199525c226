import { meet } from '../jobs/lanes.js'

interface Holder {
  readonly lanes: readonly string[]
  readonly done: Promise<void>
}

/**
 * What is worked on in this process, by its own requests and for other controllers. The lanes of requests keep those of one
 * controller apart; this keeps them from what was begun for a controller that wrote before, and has not ended yet.
 */
export class TreeLocks {
  readonly #holders = new Set<Holder>()

  /** Runs `work` once nothing else runs that has one of these lanes. Rejects as it does, or with the reason of the signal. */
  async run<R>(lanes: readonly string[], signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    const before = [...this.#holders].filter(holder => meet(holder.lanes, lanes)).map(({ done }) => done)
    let end = () => {}
    const holder = { lanes, done: new Promise<void>(resolve => (end = resolve)) }
    this.#holders.add(holder)
    try {
      await ended(before, signal)
      return await work()
    } finally {
      this.#holders.delete(holder)
      end()
    }
  }
}

async function ended(before: readonly Promise<void>[], signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  if (before.length === 0) return
  let stop = () => {}
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop)
  })
  await Promise.race([Promise.all(before), aborted]).finally(() => signal.removeEventListener('abort', stop))
}
