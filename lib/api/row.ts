import { type Access, accessOf } from '../auth/access.js'
import { badRequest } from '../base/errors.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import type { Answer } from '../http/route.js'
import type { TypeName } from '../model/docs.js'
import type { ObjectPatch } from '../model/object-type.js'
import { type BodyField, readFields, readObject } from '../model/request.js'
import { objectTypes } from '../model/types.js'
import { type ApiRequest, type ApiRoute, param, whenReady } from './context.js'
import { parameterCodes, parameterOf } from './params.js'
import { at, object, plainText, property, ref, type Schema } from './schema.js'

/** A row of the route table: it states what is particular, and all else of the route follows. */
interface Row<Given>
  extends Pick<ApiRoute, 'operator' | 'limited' | 'summary' | 'sets' | 'maxBody' | 'admit' | 'output'> {
  /** A GET that changes something: it does not answer HEAD (rules 2.5). */
  readonly changes?: true
  /** Status codes of success; default: 200, and 204 for a deletion. */
  readonly answers?: readonly number[]
  /** Status codes that follow neither from its access nor from its path or its body. */
  readonly refuses?: readonly number[]
  readonly query?: ApiRoute['query']
  readonly body?: Body<Given>
  handler(request: ApiRequest, given: Given): Answer | Promise<Answer>
}

/** Makes a route, with its common codes from access, body and path, and 503 (rules 2.3, 2.4, 2.7). */
function route<Given>(
  method: 'GET' | 'POST',
  path: string,
  access: Access,
  { changes, answers = [200], refuses = [], body, handler, ...row }: Row<Given>
): ApiRoute {
  const effect = changes || method === 'POST' ? 'changes' : 'reads'
  const refusals = new Set([
    ...accessOf({ ...row, access, path, effect }).codes,
    ...(body || checksQuery(path) ? [400] : []),
    ...parameterCodes(path),
    ...refuses,
    503
  ])
  return {
    query: {},
    ...row,
    ...{ method, path, access, effect },
    body: body ? (body.text ? 'text' : 'json') : 'ignored',
    codes: [...answers, ...[...refusals].sort()],
    ...(body ? { input: body.schema } : {}),
    handler: request => handler(request, body?.read(request) as Given)
  }
}

/** Whether unknown query keys are refused (rules 12.5). */
export const checksQuery = (path: string) => /^\/(?:config|monitor|service|control)(?:\/|$)/.test(path)

/** Returns a route that reads. `access`: who may call it. */
export const get = (path: string, access: Access, row: Row<undefined>) => route('GET', path, access, row)

/** A POST; the handler gets the parsed body. */
export const post = <Given>(path: string, access: Access, row: Row<Given>) => route('POST', path, access, row)

/** `<path>/_delete`, which answers GET and POST (rules 2.6). */
export const deletion = (path: string, access: Access, row: Row<undefined>) =>
  (['GET', 'POST'] as const).map(method =>
    route(method, `${path}/_delete`, access, { answers: [204], ...row, changes: true })
  )

/** `<path>/_list` and its synonym `<path>/_member` (rules 2.10). */
export const members = (path: string, access: Access, row: Row<undefined>) =>
  ['_list', '_member'].map(suffix => get(`${path}/${suffix}`, access, row))

/** A GET of a text that a machine runs: an iPXE script, an install script, a kickstart. */
export const script = (
  path: string,
  access: Access,
  { text, ...row }: Omit<Row<undefined>, 'handler'> & { text(request: ApiRequest): string | Promise<string> }
) =>
  get(path, access, {
    ...row,
    output: plainText,
    handler: request => whenReady(text(request), plain)
  })

const plain = (text: string): Answer => ({ status: 200, text, type: 'text/plain; charset=utf-8' })

/** A body, described once for the documents and for reading. */
export interface Body<Given> {
  readonly schema: Schema
  /** It is no JSON. */
  readonly text?: true
  /** Throws 400 that names the object, the field and what it takes. */
  read(request: ApiRequest): Given
}

/** The object and the envelope of a body; `{node}` in either is that path parameter. */
interface BodyPlace {
  /** For messages: `OS image {osimage}`. */
  readonly about: string
  /** `config.osimage.{osimage}`; a body without `at` has no envelope. */
  readonly at?: string
  /** Keys that our own answers have beside the envelope (rules 1.1). */
  readonly besides?: readonly string[]
}

type Fields = Readonly<Record<string, Omit<BodyField, 'name'>>>
type ValueOf<F> = F extends { readonly type: { read(value: JsonValue): infer V } }
  ? F extends { readonly required: true }
    ? V
    : V | null
  : never
type Values<F extends Fields> = { readonly [N in keyof F]: ValueOf<F[N]> }

/** A body of these fields. `convert` makes the handler's input; its refusals begin with `about`. */
export function bodyOf<const F extends Fields, Given = Values<F>>(
  place: BodyPlace,
  fields: F,
  convert: (values: Values<F>, about: string) => Given = values => values as unknown as Given
): Body<Given> {
  const table = Object.entries(fields).map(([name, field]): BodyField => ({ ...field, name }))
  const required = table.filter(field => field.required).map(({ name }) => name)
  const schema = object(Object.fromEntries(table.map(field => [field.name, property(field)])), required)
  const named = /\{(\w+)\}$/.exec(place.at ?? '')?.[1]
  return {
    schema: place.at === undefined ? schema : at(place.at, schema),
    read: request => {
      const about = fill(place.about, request)
      const body = place.at === undefined ? request.body : openEnvelope(request, place.at, place.besides)
      if (!isObject(body))
        throw badRequest(
          `${about}: the body must be an object with ${required.map(name => `"${name}"`).join(' and ')}`,
          'invalid-body'
        )
      const values = readFields(about, table, body, named === undefined ? undefined : param(request, named))
      const all = Object.fromEntries(table.map(({ name }) => [name, values.get(name) ?? null]))
      return convert(all as Values<F>, about)
    }
  }
}

/** The body of an object of this type, from its field table (rules 1.3, 1.6, 1.8). */
export function objectBody(type: TypeName): Body<ObjectPatch> {
  const parameter = parameterOf(type)
  const place = `config.${type}.{${parameter}}`
  // Answers of interfaces have them beside the envelope too, and may be posted back (rules 1.1).
  const besides = objectTypes[type].interfaces ? ['interfaces'] : []
  return {
    schema: at(place, ref(type)),
    read: request =>
      readObject(objectTypes[type], param(request, parameter), openEnvelope(request, place, besides))
  }
}

const fill = (template: string, request: ApiRequest) =>
  template.replace(/\{(\w+)\}/g, (_, name: string) => param(request, name))

/** Returns the content of the envelope, or a body without one (rules 1.3). Throws 400 for another name. */
export function openEnvelope(
  request: ApiRequest,
  place: string,
  besides: readonly string[] = [],
  body = request.body
): JsonValue {
  const [root = '', ...steps] = place.split('.')
  if (body === undefined) throw new TypeError(`route ${request.path} reads no body`)
  if (!isObject(body) || !Object.hasOwn(body, root)) return body
  let where = root
  let inner = onlyValue(body, root, 'the body', besides)
  for (const step of steps.map(step => fill(step, request))) {
    if (!isObject(inner)) throw badRequest(`"${where}" in the body must be an object`, 'invalid-body')
    inner = onlyValue(inner, step, `"${where}" in the body`)
    where = `${where}.${step}`
  }
  return inner
}

function onlyValue(value: JsonObject, key: string, where: string, besides: readonly string[] = []) {
  for (const other of Object.keys(value))
    if (other !== key && !besides.includes(other))
      throw badRequest(`${where} holds "${other}" where only "${key}" belongs`, 'invalid-body')
  if (!Object.hasOwn(value, key)) throw badRequest(`${where} holds no "${key}"`, 'invalid-body')
  return value[key] as JsonValue
}
