import { type Access, accessOf } from '../auth/access.js'
import type { Answer } from '../http/route.js'
import type { Body } from './body.js'
import type { ApiRequest, ApiRoute } from './context.js'
import { parameterCodes } from './params.js'
import { plainText, type Schema } from './schema.js'

/** What is particular to a route. */
interface Row<Given> {
  readonly access: Access
  readonly summary: string
  /** A GET that changes something: it does not answer HEAD (rules 2.5). */
  readonly changes?: true
  /** The codes of success; 200 when absent. */
  readonly answers?: readonly number[]
  /** The refusals that follow neither from its access nor from its path or its body. */
  readonly refuses?: readonly number[]
  /** What may stand behind the `?` of its path. */
  readonly query?: Readonly<Record<string, Schema>>
  readonly sets?: true
  readonly body?: Body<Given>
  /** Bytes of the body, where they are fewer than elsewhere. */
  readonly maxBody?: number
  readonly output?: Schema
  handler(request: ApiRequest, given: Given): Answer | Promise<Answer>
}

/**
 * The route of a row. What every route of its kind has follows: 401 and 403 from its access, 400 from a body, 400 and
 * 404 from the parameters of its path, and 503, which all of them have (rules 2.3, 2.4, 2.7).
 */
function route<Given>(
  method: 'GET' | 'POST',
  path: string,
  {
    access,
    summary,
    changes,
    answers = [200],
    refuses = [],
    query = {},
    sets,
    body,
    maxBody,
    output,
    handler
  }: Row<Given>
): ApiRoute {
  const effect = changes || method === 'POST' ? 'changes' : 'reads'
  const refusals = new Set([
    ...accessOf({ path, access, effect }).codes,
    ...(body || checksQuery(path) ? [400] : []),
    ...parameterCodes(path),
    ...refuses,
    503
  ])
  return {
    method,
    path,
    effect,
    access,
    body: body ? (body.text ? 'text' : 'json') : 'ignored',
    codes: [...answers, ...[...refusals].sort()],
    summary,
    query,
    ...(sets ? { sets } : {}),
    ...(body ? { input: body.schema } : {}),
    ...(maxBody === undefined ? {} : { maxBody }),
    ...(output ? { output } : {}),
    handler: request => handler(request, body?.read(request) as Given)
  }
}

/** Whether an unknown key behind the `?` is refused (rules 12.5). */
export const checksQuery = (path: string) => /^\/(?:config|monitor|service|control)(?:\/|$)/.test(path)

/** A GET. */
export const get = (path: string, row: Row<undefined>) => route('GET', path, row)

/** A POST; the handler gets what was read from the body. */
export const post = <Given>(path: string, row: Row<Given>) => route('POST', path, row)

/** `<path>/_delete`, which answers GET and POST (rules 2.6). */
export const deletion = (path: string, row: Row<undefined>) =>
  (['GET', 'POST'] as const).map(method => route(method, `${path}/_delete`, { ...row, changes: true }))

/** `<path>/_list` and `<path>/_member`, which are the same (rules 2.10). */
export const members = (path: string, row: Row<undefined>) =>
  ['_list', '_member'].map(suffix => get(`${path}/${suffix}`, row))

/** A GET of a text that a machine runs: an iPXE script, an install script, a kickstart. */
export const script = (
  path: string,
  {
    text,
    ...row
  }: Omit<Row<undefined>, 'handler'> & {
    readonly text: (request: ApiRequest) => string | Promise<string>
  }
) =>
  get(path, {
    ...row,
    output: plainText,
    handler: request => {
      const given = text(request)
      // Most are there at once, and machines ask in thousands.
      return typeof given === 'string' ? plain(given) : given.then(plain)
    }
  })

const plain = (text: string): Answer => ({ status: 200, text, type: 'text/plain; charset=utf-8' })
