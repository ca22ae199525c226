import { type CodeOf, defaultCode, type ErrorCode } from './error-codes.js'

/** An http answer, thrown where the fact is known. `message` names object and field (rules 1.5). */
export class ServiceError extends Error {
  override readonly name: string = 'ServiceError'
  readonly code: ErrorCode
  constructor(
    readonly status: number,
    message: string,
    readonly headers: Readonly<Record<string, string>> = {},
    { code = defaultCode(status), ...options }: ErrorOptions & { readonly code?: ErrorCode | undefined } = {}
  ) {
    // Nobody sees the stack of a refusal, and capturing it costs more than the refusal.
    const { stackTraceLimit } = Error
    if (status < 500) Error.stackTraceLimit = 0
    super(message, options)
    Error.stackTraceLimit = stackTraceLimit
    this.code = code
  }
}

/** 400: the request itself, or what it asks for, breaks a rule. */
export const badRequest = (message: string, code?: CodeOf<400>) => coded(400, message, code)
/** Returns `badRequest` for one thing, whose name begins each message. */
export const refusalsOf =
  (name: string) =>
  (why: string, code: CodeOf<400> = 'invalid-field') =>
    badRequest(`${name}: ${why}`, code)
/** 401: no valid credential where one is needed. */
export const unauthorized = (message: string, code?: CodeOf<401>) => coded(401, message, code)
/** 403: a valid credential that may not do this. */
export const forbidden = (message: string, code?: CodeOf<403>) => coded(403, message, code)
/** 404: no such route or object. */
export const notFound = (message: string, code?: CodeOf<404>) => coded(404, message, code)
/** 405 with `Allow`. */
export const methodNotAllowed = (message: string, allow: readonly string[]) =>
  new ServiceError(405, message, { Allow: allow.join(', ') })
/** 412: something has changed since the caller read it. */
export const changedMeanwhile = (message: string) => new ServiceError(412, message)
/** 413: the body is larger than `[http] max_body`. */
export const tooLarge = (message: string) => new ServiceError(413, message)
/** 503: the daemon cannot do it now; nothing was changed. */
export const unavailable = (message: string, code?: CodeOf<503>, cause?: unknown) =>
  coded(503, message, code, cause === undefined ? {} : { cause })
/** 503 with the seconds after which another try may go well. */
export const tryLater = (message: string, seconds: number) =>
  new ServiceError(503, message, { 'Retry-After': String(seconds) }, { code: 'busy' })

const coded = (status: number, message: string, code?: ErrorCode, more: ErrorOptions = {}) =>
  new ServiceError(status, message, {}, { ...more, code })

/** One problem and its place: `file` is a path, or `--set section.key` for the command line. */
export interface Problem {
  readonly file: string
  /** Counted from 1; absent if no single line is at fault. */
  readonly line?: number
  readonly message: string
}

/** Several problems; the message has one per line. */
export class ProblemsError extends Error {
  override readonly name: string = 'ProblemsError'
  constructor(readonly problems: readonly Problem[]) {
    super(problems.map(problemText).join('\n'))
  }
}

/** `file:line: message`, as compilers print it, so that editors find the place. */
export const problemText = ({ file, line, message }: Problem): string =>
  line === undefined ? `${file}: ${message}` : `${file}:${line}: ${message}`
