/**
 * Work in lanes. Two jobs with a common lane never overlap, and run in the order they came. A lane includes
 * those whose names continue its own after a slash: `tree /a` includes `tree /a/b`.
 */
export interface Laned {
  readonly lanes: readonly string[]
  /** Whether it may begin. Until then it only has its place in the order. */
  readonly ready: boolean
  /** Its work is on other machines: it takes a slot of its own kind. */
  readonly elsewhere: boolean
  /** With `elsewhere`: it changes nothing, and takes a slot for readers. */
  readonly reads?: boolean
}

/** Slots for jobs that work on other machines, and cost little here. */
const MOST_ELSEWHERE = 16
/** Slots for such jobs that only read. */
const MOST_READING = 16

/**
 * Returns the waiting jobs that may begin now, oldest first: at most `parallel` on this machine, and beside
 * them 16 on other machines that change something and 16 that only read.
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
    // Also the lanes of a waiting job: a later job in one of them waits behind it.
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
