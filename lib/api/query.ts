import { badRequest } from '../errors.js'
import type { Answer } from '../http/route.js'
import type { ApiRequest, ApiRoute } from './context.js'
import { isPretty } from './listing.js'
import { plainText, type Schema, word } from './schema.js'

/**
 * The route, which refuses what it does not know behind the `?` (rules 12.5), and lays its JSON out where the caller wants
 * it pretty. A compressed answer goes to those who may ask for much.
 */
export function withQuery(route: ApiRoute): ApiRoute {
  const laysOut = route.method === 'GET' && route.output !== undefined && route.output !== plainText
  const query = laysOut ? { pretty: word('yes', 'no'), ...route.query } : route.query
  const finish = (answer: Answer, request: ApiRequest): Answer => {
    const { body, ...rest } = answer
    const compress = request.caller.kind !== 'anonymous' && takesGzip(request.headers['accept-encoding'])
    if (body === undefined || !laysOut || !isPretty(request.query))
      return compress ? { ...answer, compress } : answer
    return { ...rest, json: JSON.stringify(body, null, 2), compress }
  }
  return {
    ...route,
    query,
    handler: request => {
      checkKeys(request, query)
      const answer = route.handler(request)
      return answer instanceof Promise
        ? answer.then(given => finish(given, request))
        : finish(answer, request)
    }
  }
}

/** Whether a header Accept-Encoding takes gzip. */
const takesGzip = (header: string | string[] | undefined) =>
  String(header ?? '')
    .split(',')
    .some(coding => /^\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q=(?:1|0\.\d*[1-9])\S*\s*)?$/i.test(coding))

/** Throws 400 for a key that the route does not know, or that stands there twice. */
function checkKeys({ query }: ApiRequest, known: ApiRoute['query']): void {
  for (const key of new Set(query.keys())) {
    if (!Object.hasOwn(known, key)) {
      const names = Object.keys(known)
      const there = names.length === 0 ? 'none is known here' : `there is ${names.join(', ')}`
      throw badRequest(`query key ${JSON.stringify(key.slice(0, 100))} is not known: ${there}`)
    }
    const words = (known[key] as Schema).enum as readonly string[] | undefined
    const takes = words ? `; it must be ${words.join(' or ')}` : ''
    if (query.getAll(key).length > 1) throw badRequest(`query key "${key}" stands there twice${takes}`)
  }
}
