import { setImmediate as nextTurn } from 'node:timers/promises'

const sliceMs = 5

/** Runs work that yields now and then to its end, and gives way to the event loop every few milliseconds. */
export async function inSlices<T>(work: Generator<unknown, T>): Promise<T> {
  let since = performance.now()
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
    if (performance.now() - since < sliceMs) continue
    await nextTurn()
    since = performance.now()
  }
}
