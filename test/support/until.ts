import { setTimeout as sleep } from 'node:timers/promises'

/** No test passes or fails by its speed: this is there so that one which waits in vain ends, and says for what. */
const limitMs = 180_000

/**
 * Waits until something holds that nobody tells of: it is asked again every `stepMs`.
 * @throws Error naming `what` when it has not come after three minutes.
 */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  stepMs = 5
): Promise<void> {
  for (const end = performance.now() + limitMs; !(await holds()); await sleep(stepMs))
    if (performance.now() > end) throw new Error(`waited in vain: ${what}`)
}
