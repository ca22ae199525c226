import { getSystemErrorMap } from 'node:util'
import type { ErrorCode } from '../base/error-codes.js'
import { type Problem, ProblemsError, problemText, ServiceError } from '../base/errors.js'
import { firstOf } from '../base/log.js'

/** A change cannot be made durable now; nothing was changed, in memory or on disk (rules 2.7). */
export class StoreError extends ServiceError {
  override readonly name: string = 'StoreError'

  constructor(
    readonly reason: string,
    headers: Readonly<Record<string, string>> = {},
    code: ErrorCode = 'store-unavailable'
  ) {
    super(503, `the store is unavailable: ${reason}`, headers, { code })
  }
}

/** Another controller leads. `reason` names it to callers who may know. */
export class NotLeaderError extends StoreError {
  override readonly name = 'NotLeaderError'

  constructor(reason = 'another controller writes') {
    super(reason, { 'Retry-After': '5' }, 'not-leader')
  }
}

/** Files do not parse or break a rule. */
export class LoadError extends ProblemsError {
  override readonly name = 'LoadError'
}

/** Another daemon holds the state directory; `pid` is its process. */
export class LockedError extends Error {
  override readonly name = 'LockedError'

  constructor(
    directory: string,
    readonly pid: number
  ) {
    super(`the state directory ${directory} is in use by process ${pid}`)
  }
}

/** Thrown by `Kind.decode`: `path` leads to the value and gives its line; `others` are more errors. */
export class FieldError extends Error {
  override readonly name = 'FieldError'

  constructor(
    readonly path: readonly (string | number)[],
    message: string,
    readonly others: readonly FieldError[] = []
  ) {
    super(message)
  }
}

/** The first of many problems, on one line. */
export const summaryOf = (problems: readonly Problem[], most = 3): string =>
  firstOf(problems.map(problemText), most, '; ') + (problems.length > most ? ': type svcd check' : '')

/** The reason of an error, fit for clients: system errors in words, without their path. */
export function reasonOf(error: unknown): string {
  if (error instanceof StoreError) return error.reason
  if (!(error instanceof Error)) return String(error)
  const known = 'errno' in error && getSystemErrorMap().get(Number(error.errno))
  return known ? `${known[1]} (${known[0]})` : error.message
}

/** Another svcd leads; the message names it. */
export class LeaderExistsError extends Error {}
