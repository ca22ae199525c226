import { accessOf } from '../auth/access.js'
import type { errorCodes } from '../base/error-codes.js'
import { version } from '../version.js'
import type { ApiRoute } from './context.js'
import { parametersOf } from './params.js'
import { hasEntityTag, takesIfMatch } from './preconditions.js'
import { bytes, components, csv, plainText, ref, type Schema, string } from './schema.js'

const statusText: Readonly<Record<number, string>> = {
  200: 'done',
  201: 'created',
  204: 'done, no body',
  206: 'the part of the file that was asked for',
  400: 'the request breaks a rule; the message names the object and the field',
  401: 'no valid credential',
  403: 'the token is valid, but may not do this',
  404: 'there is no such object, or no free address',
  412: 'it is not what If-Match names any more; nothing was changed',
  416: 'the file does not have this range',
  503: 'not possible now; nothing was changed'
}

const etag = 'the entity tag, for If-Match'
const ifMatch = 'the ETag of what was read: 412 if that has changed since; or *'

function content(schema: Schema): object {
  if (schema === bytes) return { 'application/octet-stream': { schema } }
  if (schema === csv) return { 'text/csv': { schema } }
  return { [schema === plainText ? 'text/plain' : 'application/json']: { schema } }
}

/** `GET /config/node/{node}` → getConfigNodeByNode. */
function operationId({ method, path }: ApiRoute): string {
  const words = path
    .split('/')
    .filter(part => part !== '')
    .map(part => part.replace(/^\{(\w+)\}$/, 'by_$1'))
    .flatMap(part => part.split(/[^A-Za-z0-9]+/).filter(word => word !== ''))
  return method.toLowerCase() + words.map(word => word.slice(0, 1).toUpperCase() + word.slice(1)).join('')
}

const securityOf = { needed: [{ token: [] }], optional: [{}, { token: [] }], unread: [] }

function operation(route: ApiRoute): object {
  const { says, token } = accessOf(route)
  const answer = (code: number): Schema | undefined =>
    code === 204
      ? undefined
      : code >= 400
        ? ref(`refusal${code as keyof typeof errorCodes}`)
        : (route.output ?? ref('message'))
  return {
    operationId: operationId(route),
    tags: [topicOf(route)],
    summary: route.summary,
    description: `Access: ${says}.`,
    security: securityOf[token],
    parameters: [
      ...parametersOf(route.path).map(name => ({
        ...{ name, in: 'path', required: true, schema: string() },
        description: `the ${name} in question${name === 'node' && route.sets ? ', or a node set' : ''}`
      })),
      ...Object.entries(route.query).map(([name, schema]) => ({
        ...{ name, in: 'query', schema },
        description: schema.description ?? `one of ${(schema.enum as readonly string[]).join(', ')}`
      })),
      ...(takesIfMatch(route)
        ? [{ name: 'If-Match', in: 'header', schema: string(), description: ifMatch }]
        : [])
    ],
    ...(route.input ? { requestBody: { required: true, content: content(route.input) } } : {}),
    responses: Object.fromEntries(
      (route.codes.some(code => code >= 400 && code < 500) ? route.codes : [...route.codes, 400]).map(
        code => {
          const schema = answer(code)
          return [
            code,
            {
              description: statusText[code] ?? 'refused',
              ...(code === 200 && hasEntityTag(route) ? { headers: { ETag: { schema: string(etag) } } } : {}),
              ...(schema && { content: content(schema) })
            }
          ]
        }
      )
    )
  }
}

/** The topic of a route: /config/node → node, /monitor/node → monitor. */
const topicOf = ({ path }: ApiRoute) => /^\/(?:config\/)?(\w+)/.exec(path)?.[1] ?? 'page'

/** Returns the OpenAPI 3.1 document, made from the route and field tables. */
export function openapi(routes: readonly ApiRoute[]): object {
  const paths: Record<string, Record<string, object>> = {}
  const codes = new Set(routes.flatMap(route => route.codes))
  const isUsed = ([name]: readonly [string, Schema]) =>
    !name.startsWith('refusal') || codes.has(Number(name.slice(-3)))
  // GET before POST, whatever the order of the table.
  for (const route of [...routes].sort((a, b) => a.method.localeCompare(b.method))) {
    const methods = paths[route.path] ?? {}
    methods[route.method.toLowerCase()] = operation(route)
    paths[route.path] = methods
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'svcd',
      version: version.service,
      summary: 'Cluster provisioning and configuration service',
      description: 'docs/api.md of svcd has the same routes and fields as a page, and the rules behind them.',
      contact: { name: 'svcd maintainers' },
      license: { name: 'Apache-2.0', url: 'https://www.apache.org/licenses/LICENSE-2.0' }
    },
    servers: [{ url: '/' }],
    tags: [...new Set(routes.map(topicOf))]
      .sort()
      .map(name => ({ name, description: `Routes about ${name}` })),
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(components).filter(isUsed)),
      securitySchemes: { token: { type: 'apiKey', in: 'header', name: 'x-access-tokens' } }
    }
  }
}
