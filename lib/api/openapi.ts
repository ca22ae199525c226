import { version } from '../version.js'
import type { ApiRoute } from './context.js'
import { components, type Schema, shapes } from './shapes.js'

/** What each access word means to a caller of the interface (auth/access.ts). */
export const accessText: Readonly<Record<string, string>> = {
  anyone: 'no token',
  minimal: 'token; without one names only',
  address: 'token for a network; an address is told without one',
  reader: 'token',
  user: 'token',
  admin: "an admin's token",
  node: 'token, also that of the node itself',
  source: 'by source address; a token that is sent must be valid',
  files: 'from a configured network, or with a token'
}

const statusText: Readonly<Record<number, string>> = {
  200: 'done',
  201: 'created',
  204: 'done, no body',
  206: 'the part of the file that was asked for',
  400: 'the request breaks a rule; the message names the object and the field',
  401: 'no valid credential',
  403: 'a valid token that may not',
  404: 'no such object, or no free address',
  416: 'the range is not in the file',
  503: 'not possible now; nothing was changed'
}

const parametersOf = (path: string) => [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as string)

function content(schema: Schema): object {
  if (schema === shapes.bytes) return { 'application/octet-stream': { schema } }
  return { [schema === shapes.text ? 'text/plain' : 'application/json']: { schema } }
}

/** `GET /config/node/{node}` → `getConfigNodeByNode`. */
function operationId({ method, path }: ApiRoute): string {
  const words = path
    .split('/')
    .filter(part => part !== '')
    .map(part => part.replace(/^\{(\w+)\}$/, 'by_$1'))
    .flatMap(part => part.split(/[^A-Za-z0-9]+/).filter(word => word !== ''))
  return method.toLowerCase() + words.map(word => word.slice(0, 1).toUpperCase() + word.slice(1)).join('')
}

/** Where a token is needed, not only welcome. */
const mandatory = new Set(['reader', 'user', 'admin', 'node'])

function operation(route: ApiRoute): object {
  const token = route.access !== 'anyone'
  return {
    operationId: operationId(route),
    summary: route.summary,
    description: `Access: ${accessText[route.access]}.`,
    ...(token
      ? {
          security: mandatory.has(route.access) ? [{ token: [] }] : [{}, { token: [] }]
        }
      : {}),
    parameters: parametersOf(route.path).map(name => ({
      name,
      in: 'path',
      required: true,
      schema: { type: 'string' }
    })),
    ...(route.input ? { requestBody: { required: true, content: content(route.input as Schema) } } : {}),
    responses: Object.fromEntries(
      route.codes.map(code => {
        const schema =
          code >= 400 ? shapes.message : code === 204 ? undefined : (route.output ?? shapes.message)
        const body = schema ? { content: content(schema as Schema) } : {}
        return [String(code), { description: statusText[code] ?? 'refused', ...body }]
      })
    )
  }
}

/** The interface as an OpenAPI 3.1 document, made from the route and field tables. */
export function openapi(routes: readonly ApiRoute[]): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const route of routes) {
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
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' }
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: components,
      securitySchemes: { token: { type: 'apiKey', in: 'header', name: 'x-access-tokens' } }
    }
  }
}
