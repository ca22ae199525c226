import type { Jobs } from '../jobs/jobs.js'
import type { Condition } from './health.js'

/** Whether at most `most` requests wait for others to end (rules 6.3). */
export function queueCondition(jobs: Pick<Jobs, 'records'>, most: number): Condition {
  const waiting = jobs.records().filter(({ state }) => state === 'queued').length
  const ok = waiting <= most
  return { ok, reason: ok ? '' : `more than ${most} requests wait to run` }
}
