import { accessOf } from '../auth/access.js'
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

const securityOf = { needed: [{ token: [] }], optional: [{}, { token: [] }], unread: undefined }

function operation(route: ApiRoute): object {
  const { says, token } = accessOf(route)
  const security = securityOf[token]
  const answer = (code: number): Schema | undefined =>
    code === 204 ? undefined : code >= 400 ? ref('refusal') : (route.output ?? ref('message'))
  return {
    operationId: operationId(route),
    summary: route.summary,
    description: `Access: ${says}.`,
    ...(security ? { security } : {}),
    parameters: [
      ...parametersOf(route.path).map(name => ({ name, in: 'path', required: true, schema: string() })),
      ...Object.entries(route.query).map(([name, schema]) => ({ name, in: 'query', schema })),
      ...(takesIfMatch(route) ? [{ name: 'If-Match', in: 'header', schema: string(ifMatch) }] : [])
    ],
    ...(route.input ? { requestBody: { required: true, content: content(route.input) } } : {}),
    responses: Object.fromEntries(
      route.codes.map(code => {
        const schema = answer(code)
        return [
          code,
          {
            description: statusText[code] ?? 'refused',
            ...(code === 200 && hasEntityTag(route) ? { headers: { ETag: { schema: string(etag) } } } : {}),
            ...(schema && { content: content(schema) })
          }
        ]
      })
    )
  }
}

/** Returns the OpenAPI 3.1 document, made from the route and field tables. */
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
