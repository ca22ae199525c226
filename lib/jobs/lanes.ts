/**
 * What runs in lanes. Two jobs with a common lane never run at once, and run in the order they came. A lane includes
 * those whose names continue its own after a slash: `tree /a` includes `tree /a/b`.
 */
export interface Laned {
  readonly lanes: readonly string[]
  /** Whether it may begin. Before that it only has its place in the order. */
  readonly ready: boolean
  /** It takes a place among those whose work is elsewhere, and none of this machine's. */
  readonly elsewhere: boolean
  /** Of those whose work is elsewhere: it changes nothing, and takes a place among such. */
  readonly reads?: boolean
}

/** How many jobs run at once whose work is on other machines, and costs little here. */
const MOST_ELSEWHERE = 16
/** And how many of those that only read. */
const MOST_READING = 16

/**
 * The waiting jobs that may begin now, oldest first, so that at most `parallel` run, those apart whose work is elsewhere:
 * of these 16 run that change something, and 16 that only read.
 */
export function startable<J extends Laned>(
  waiting: Iterable<J>,
  running: Iterable<Laned>,
  parallel: number
): J[] {
  const taken = new Set<string>()
  /** The lanes that include a taken one. */
  const above = new Set<string>()
  const take = (lane: string) => {
    taken.add(lane)
    for (const holder of holdersOf(lane)) above.add(holder)
  }
  const isTaken = (lane: string) =>
    taken.has(lane) || above.has(lane) || holdersOf(lane).some(holder => taken.has(holder))
  const free = { here: parallel, elsewhere: MOST_ELSEWHERE, reading: MOST_READING }
  const placeOf = ({ elsewhere, reads }: Laned) => (!elsewhere ? 'here' : reads ? 'reading' : 'elsewhere')
  for (const job of running) {
    free[placeOf(job)]--
    for (const lane of job.lanes) take(lane)
  }
  const found: J[] = []
  for (const job of waiting) {
    if (free.here <= 0 && free.elsewhere <= 0 && free.reading <= 0) break
    const place = placeOf(job)
    if (job.ready && free[place] > 0 && !job.lanes.some(isTaken)) {
      found.push(job)
      free[place]--
    }
    // Also the lanes of a job that has to wait: a later job with one of them waits behind it.
    for (const lane of job.lanes) take(lane)
  }
  return found
}

/** Whether two that have these lanes have a common one. */
export const meet = (one: readonly string[], other: readonly string[]): boolean =>
  one.some(lane =>
    other.some(to => lane === to || holdersOf(lane).includes(to) || holdersOf(to).includes(lane))
  )

/** The lanes that include a lane: `tree /a` and `tree ` for `tree /a/b`. */
const holdersOf = (lane: string) => [...lane.matchAll(/\//g)].map(({ index }) => lane.slice(0, index))
