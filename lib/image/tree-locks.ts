import { meet } from '../jobs/work.js'
import { tryLockDirectory } from '../program/system.js'
import { unusable } from './refusals.js'

interface Holder {
  readonly lanes: readonly string[]
  readonly done: Promise<void>
}

/** Locks of directories in this process: they also keep jobs from removals and from `decide`. */
export class TreeLocks {
  readonly #holders = new Set<Holder>()

  /** Whether something runs in one of these lanes, or waits to. */
  isHeld(lanes: readonly string[]): boolean {
    return [...this.#holders].some(holder => meet(holder.lanes, lanes))
  }

  /** Runs `work` once nothing else runs in these lanes. Rejects as it, or with the signal's reason. */
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

/** Keeps shells of root out of these directories. Throws 503 where one is open (rules 9.13). */
export async function heldTrees<R>(lanes: readonly string[], work: () => Promise<R>): Promise<R> {
  const named = (kind: string) =>
    lanes.flatMap(lane => (lane.startsWith(`${kind} `) ? lane.slice(kind.length + 1) : []))
  const [image] = named('osimage')
  const releases: (() => Promise<void>)[] = []
  try {
    for (const tree of new Set(named('tree'))) {
      // One that is not there yet, or that this user may not open, is left to the work.
      const release = await tryLockDirectory(tree).catch(error => {
        if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code)) return async () => {}
        throw error
      })
      if (release === undefined)
        throw unusable(
          `${image}`,
          `a shell is open in its directory ${tree} (svcd osimage shell ${image}): end it, and ask again; ` +
            'nothing was done'
        )
      releases.push(release)
    }
    return await work()
  } finally {
    await Promise.all(releases.map(release => release()))
  }
}
