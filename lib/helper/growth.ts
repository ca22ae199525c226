import { setTimeout as sleep } from 'node:timers/promises'

/** The writing of a program, and its bounds. */
export interface Growth {
  /** Returns the bytes that were written. A throw ends the work. */
  measure(): Promise<number>
  /** Returns why so many bytes are too many; undefined while they are not. */
  tooMuch(bytes: number): string | undefined
  /** The work ends when it writes nothing for so long. */
  readonly stallMs?: number
  seen?(bytes: number): void
}

const LOOK_MS = 500
/** Bytes of a file system that stay free for the rest of this machine. */
export const LEFT_FREE = 256 * 2 ** 20

/** Runs work, and stops it by its signal when it writes too much or nothing more: then throws Error. */
export async function bounded<T>(
  growth: Growth,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>
): Promise<T> {
  const stop = new AbortController()
  const over = new AbortController()
  const { stallMs = Number.POSITIVE_INFINITY } = growth
  let reason: Error | undefined
  const look = async () => {
    const bytes = await growth.measure()
    growth.seen?.(bytes)
    const why = growth.tooMuch(bytes)
    if (why !== undefined) throw new Error(why)
    return bytes
  }
  const watch = async () => {
    let [last, since] = [-1, performance.now()]
    while (!over.signal.aborted) {
      const bytes = await look()
      if (bytes !== last) [last, since] = [bytes, performance.now()]
      if (performance.now() - since > stallMs)
        throw new Error(`nothing came for ${Math.round(stallMs / 1000)} s`)
      await sleep(LOOK_MS, undefined, { signal: over.signal }).catch(() => {})
    }
  }
  const watched = watch().catch(error => {
    if (over.signal.aborted) return
    reason = error
    stop.abort()
  })
  try {
    const result = await work(AbortSignal.any([signal, stop.signal]))
    over.abort()
    await watched
    // The last bytes may have come after the last look.
    await look()
    return result
  } catch (error) {
    throw reason ?? error
  } finally {
    over.abort()
    await watched
  }
}
