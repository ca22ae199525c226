/**
 * What has lanes: two with a common one never run at once, and run in the order they came. A lane holds those that
 * have its name, a slash and more: `tree /a` that of `tree /a/b`.
 */
export interface Laned {
  readonly lanes: readonly string[]
  /** It has its place in the order, and may begin. */
  readonly ready: boolean
}

/** Those of the waiting, oldest first, that may begin now, so that at most `parallel` run. */
export function startable<J extends Laned>(
  waiting: Iterable<J>,
  running: Iterable<Laned>,
  parallel: number
): J[] {
  const taken = new Set<string>()
  /** Those that hold a taken one. */
  const above = new Set<string>()
  const take = (lane: string) => {
    taken.add(lane)
    for (const holder of holdersOf(lane)) above.add(holder)
  }
  const isTaken = (lane: string) =>
    taken.has(lane) || above.has(lane) || holdersOf(lane).some(holder => taken.has(holder))
  let free = parallel
  for (const { lanes } of running) {
    free--
    for (const lane of lanes) take(lane)
  }
  const found: J[] = []
  for (const job of waiting) {
    if (free <= 0) break
    if (job.ready && !job.lanes.some(isTaken)) {
      found.push(job)
      free--
    }
    // Also of one that has to wait: whoever comes after it waits behind it.
    for (const lane of job.lanes) take(lane)
  }
  return found
}

/** `tree /a` and `tree ` for `tree /a/b`. */
const holdersOf = (lane: string) => [...lane.matchAll(/\//g)].map(({ index }) => lane.slice(0, index))
