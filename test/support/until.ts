import { setTimeout as sleep } from 'node:timers/promises'

/**
 * No test passes or fails by its speed: this is there so that one which waits in vain ends, and says for
 * what.
 */
const limitMs = 180_000
/** A question may start a program: one that waits long asks less often, and waits a tenth longer at most. */
const stepMs = (waitedMs: number) => Math.min(50, Math.max(5, waitedMs / 10))

/**
 * Waits until something holds that nobody tells of; it is asked again and again.
 * @throws Error naming `what` (what it says then, if it is a function) when it has not come after `longestMs` (three minutes).
 */
export async function until(
  holds: () => boolean | Promise<boolean>,
  what: string | (() => unknown) = String(holds),
  longestMs = limitMs
): Promise<void> {
  const begin = performance.now()
  for (let waitedMs = 0; !(await holds()); waitedMs = performance.now() - begin) {
    if (waitedMs > longestMs)
      throw new Error(`waited in vain for ${typeof what === 'string' ? what : JSON.stringify(await what())}`)
    await sleep(stepMs(waitedMs))
  }
}
