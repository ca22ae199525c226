import { didYouMean } from '../did-you-mean.js'
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

/** A header of a client is shorter. */
const LONGEST_ENCODINGS = 256

/** Whether a header Accept-Encoding takes gzip. */
export function takesGzip(header: string | string[] | undefined): boolean {
  const text = String(header ?? '')
  if (text === '' || text.length > LONGEST_ENCODINGS) return false
  return text.split(',').some(entry => {
    const [coding = '', ...parameters] = entry.split(';').map(word => word.trim().toLowerCase())
    return (
      ['gzip', 'x-gzip', '*'].includes(coding) && !parameters.some(word => /^q=0(?:\.0{0,3})?$/.test(word))
    )
  })
}

/** Throws 400 for a key that the route does not know, or that stands there twice. */
function checkKeys({ query }: ApiRequest, known: ApiRoute['query']): void {
  if (query.size === 0) return
  for (const key of new Set(query.keys())) {
    if (!Object.hasOwn(known, key)) {
      const names = Object.keys(known)
      const there = names.length === 0 ? 'none is known here' : `there is ${names.join(', ')}`
      throw badRequest(
        `query key ${JSON.stringify(key.slice(0, 100))} is not known${didYouMean(key, names)}: ${there}`
      )
    }
    const words = (known[key] as Schema).enum as readonly string[] | undefined
    const takes = words ? `; it must be ${words.join(' or ')}` : ''
    if (query.getAll(key).length > 1) throw badRequest(`query key "${key}" stands there twice${takes}`)
  }
}
