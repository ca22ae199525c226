import { setTimeout as sleep } from 'node:timers/promises'

/**
 * No test passes or fails by its speed: this is there so that one which waits in vain ends, and says for
 * what.
 */
const limitMs = 180_000
const stepMs = 5

/**
 * Waits until something holds that nobody tells of; it is asked again and again.
 * @throws Error naming `what` (what it says then, if it is a function) when it has not come after three minutes.
 */
export async function until(
  holds: () => boolean | Promise<boolean>,
  what: string | (() => unknown) = String(holds)
): Promise<void> {
  for (const end = performance.now() + limitMs; !(await holds()); await sleep(stepMs))
    if (performance.now() > end)
      throw new Error(`waited in vain for ${typeof what === 'string' ? what : JSON.stringify(what())}`)
}
