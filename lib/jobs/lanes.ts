/** What has lanes: two with a common one never run at once, and run in the order they came. */
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
  let free = parallel
  for (const { lanes } of running) {
    free--
    for (const lane of lanes) taken.add(lane)
  }
  const found: J[] = []
  for (const job of waiting) {
    if (free <= 0) break
    if (job.ready && !job.lanes.some(lane => taken.has(lane))) {
      found.push(job)
      free--
    }
    // Also of one that has to wait: whoever comes after it waits behind it.
    for (const lane of job.lanes) taken.add(lane)
  }
  return found
}
