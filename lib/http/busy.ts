import { ServiceError } from '../errors.js'

/** Clients that were refused together should not come back together: seconds. */
const SOONEST = 2
const LATEST = 10

/** 503 with Retry-After: there is too much to do just now, and a later try will succeed. `why` is told to the client. */
export function busy(why: string): ServiceError {
  const seconds = SOONEST + Math.floor(Math.random() * (LATEST - SOONEST + 1))
  return new ServiceError(503, `${why}; try again in ${seconds} s`, { 'Retry-After': String(seconds) })
}
