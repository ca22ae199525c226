import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import type { Answer } from '../http/route.js'
import type { JobSummary } from '../jobs/jobs.js'
import { answerSourceOf, show } from '../model/answer.js'
import type { TypeName } from '../model/docs.js'
import { effectiveGroup } from '../model/effective.js'
import { decoded, flags, listed, withFlags, yesOrNo } from '../model/luna.js'
import { fieldFor } from '../model/table.js'
import type { InterfaceDoc } from '../model/types/interface.js'
import { objectTypes, typeNames } from '../model/types.js'
import type { ServiceState } from '../monitor/health.js'
import { type ApiRequest, type ApiRoute, ok, type Parts, param, replaced } from './context.js'
import { parameterOf } from './params.js'
import { get } from './row.js'
import { at, list, object, string } from './schema.js'

const network = '/config/network/{network}'
const bmcsetup = '/config/bmcsetup/{bmcsetup}'
const osimage = '/config/osimage/{osimage}'

/** The status to replace by 204, by the path of the change: the client accepts 204 alone. */
const emptiedCodes: Readonly<Record<string, number>> = {
  [network]: 200,
  [`${network}/_delete`]: 201,
  [bmcsetup]: 200,
  '/config/group/{group}/interfaces': 201,
  '/config/dns/{network}': 201
}

/** The client waits 5 s for an answer, then polls its request. */
const acknowledgedPaths = new Set([`${osimage}/_pack`, `${osimage}/kernel`, `${osimage}/_clone`])

/** Converts the fields of a body from the dialect. */
type Reader = (fields: JsonValue, request: ApiRequest, parts: Parts) => JsonValue

interface Reading {
  /** As in `bodyOf`: `config.node.{node}`. */
  readonly place: string
  readonly read: Reader
}

/** By the path of the POST. */
const readings = new Map<string, Reading>()
for (const type of typeNames) {
  const parameter = parameterOf(type)
  const one = `/config/${type}/{${parameter}}`
  const read: Reader = (fields, request, parts) => readTexts(fields, type, param(request, parameter), parts)
  for (const path of [one, `${one}/_clone`, `${one}/interfaces`])
    readings.set(path, { place: `config.${type}.{${parameter}}`, read })
}
for (const type of ['node', 'group'] as const) {
  const [one, secrets] = [`/config/${type}/{${type}}`, `/config/secrets/${type}/{${type}}`]
  const read: Reader = (fields, request, parts) =>
    readTransfer(fields, imageOf(type, param(request, type), parts))
  for (const path of [`${one}/_osgrab`, `${one}/_ospush`])
    readings.set(path, { place: `config.${type}.{${type}}`, read })
  for (const path of [secrets, `${secrets}/{secret}`, `${secrets}/{secret}/_clone`])
    readings.set(path, { place: `config.secrets.${type}.{${type}}`, read: readSecrets })
}

/** Wraps the route table in the dialect of luna's client (rules 2.17). docs/luna.md lists all differences. */
export function inLuna(routes: readonly ApiRoute[], parts: Parts): ApiRoute[] {
  return [...routes.map(route => translated(route, parts)), queue(parts)]
}

function translated(route: ApiRoute, parts: Parts): ApiRoute {
  const { path, effect } = route
  // Booting machines do not use the dialect.
  if (!/^\/(?:config|monitor|service|control)\//.test(path)) return route
  const empty = effect === 'changes' ? emptiedCodes[path] : undefined
  const reading = route.method === 'POST' ? readings.get(path) : undefined
  const show = shows(path)
  return {
    ...route,
    codes: empty === undefined ? route.codes : withEmpty(route, empty),
    handler: async request => {
      if (request.headers['x-svcd-dialect'] === 'none') return route.handler(request)
      const answer = await route.handler(fromDialect(request, route, parts, reading))
      if (answer.status === empty && isMessage(answer.body)) return { status: 204 }
      // An answer in another format is no JSON.
      return show && (answer.body ?? answer.json) !== undefined ? show(answer, request, parts) : answer
    }
  }
}

/** The codes of a route whose `empty` becomes 204; a dry run keeps its own. */
function withEmpty({ codes, query }: ApiRoute, empty: number): number[] {
  const others = codes.filter(
    code => code !== 204 && (code !== empty || (empty === 200 && 'dryrun' in query))
  )
  return [204, ...others]
}

/** Converts a request. Unknown query keys are dropped, but never `dryrun`. */
function fromDialect(request: ApiRequest, route: ApiRoute, parts: Parts, reading: Reading | undefined) {
  const isKept = ([key]: readonly [string, string]) => key === 'dryrun' || Object.hasOwn(route.query, key)
  return replaced(request, {
    query: new URLSearchParams([...request.query].filter(isKept)),
    ...(acknowledgedPaths.has(route.path)
      ? { headers: { ...request.headers, prefer: 'respond-async' } }
      : {}),
    ...(reading && request.body !== undefined ? { body: readBody(request, reading, parts) } : {})
  })
}

/** Converts the fields in a body. Faults of the envelope are left to the route (rules 1.3). */
function readBody(request: ApiRequest, { place, read }: Reading, parts: Parts): JsonValue {
  const body = request.body as JsonValue
  const steps = place
    .split('.')
    .map(step => (step.startsWith('{') ? param(request, step.slice(1, -1)) : step))
  const within = (value: JsonValue, [step, ...rest]: readonly string[]): JsonValue => {
    if (step === undefined) return read(value, request, parts)
    if (!isObject(value) || !Object.hasOwn(value, step)) return value
    return { ...value, [step]: within(value[step] as JsonValue, rest) }
  }
  const hasEnvelope = isObject(body) && Object.hasOwn(body, steps[0] as string)
  return hasEnvelope ? within(body, steps) : read(body, request, parts)
}

const texts = ['comment', 'kerneloptions', 'kernopts']
const lists = ['grab_exclude', 'grab_exclude_list', 'grab_filesystems']

/** Decodes base64, the client's words for yes and no, and luna's fields. Texts posted back unchanged stay. */
function readTexts(fields: JsonValue, type: TypeName, name: string, parts: Parts): JsonValue {
  if (!isObject(fields)) return fields
  const read = { ...fields }
  const before = () => shownBefore(type, name, parts)
  const move = (from: string, to: string, value: JsonValue | undefined) => {
    if (value === undefined || Object.hasOwn(read, to)) return
    delete read[from]
    read[to] = value
  }
  if (type === 'network') {
    const { shared, non_authoritative: hosts = '?' } = read
    move('shared', 'shared_with', shared)
    const isHosts = hosts === '' ? false : yesOrNo(hosts)
    move('non_authoritative', 'dns', isHosts === undefined ? undefined : isHosts ? 'hosts' : '')
  }
  for (const key of texts)
    if (typeof read[key] === 'string') read[key] = decoded(read[key], () => before()[key])
  for (const key of lists) if (typeof read[key] === 'string') read[key] = listed(read[key])
  for (const [key, value] of Object.entries(read))
    if (typeof value === 'string' && fieldFor(objectTypes[type].fields, key, value)?.type.json === 'boolean')
      read[key] = yesOrNo(value) ?? value
  if (Array.isArray(read.interfaces))
    read.interfaces = read.interfaces.map(entry => {
      if (!isObject(entry)) return entry
      const there = (before().interfaces ?? []) as readonly InterfaceDoc[]
      const options = there.find(one => one.interface === entry.interface)?.options
      return readInterface(entry, options ?? '')
    })
  return read
}

/** Decodes the options of an interface, and merges luna's flags into them; `before`: its current options. */
function readInterface(entry: JsonObject, before: string): JsonObject {
  const rest = { ...entry }
  if (typeof rest.options === 'string') rest.options = decoded(rest.options, () => before)
  const given = Object.keys(flags).filter(flag => entry[flag] !== undefined)
  const { options = before } = rest
  const isWrong = given.some(flag => isObject(entry[flag] ?? null) || Array.isArray(entry[flag]))
  // The route refuses wrong values.
  if (given.length === 0 || isWrong || typeof options !== 'string') return rest
  for (const flag of given) delete rest[flag]
  return { ...rest, options: withFlags(options, entry) }
}

/** The fields that a GET shows now; none if the object is new. */
function shownBefore(type: TypeName, name: string, { model }: Parts): Readonly<Record<string, unknown>> {
  const doc = model.view.get(type, name)
  if (!doc) return {}
  const source = answerSourceOf(type, doc, model.view, () => null)
  return show(type, source, { cluster: model.cluster, masked: false })
}

const isUnset = (value: JsonValue | undefined) => value === undefined || value === null || value === ''

/** A grab or a push: a dry run unless the body says otherwise, by default of the image in force. */
function readTransfer(fields: JsonValue, inForce: string | null): JsonValue {
  if (!isObject(fields)) return fields
  const { bare: _, ...read } = fields
  if (isUnset(read.nodry) && isUnset(read.dryrun)) read.dryrun = true
  if (isUnset(read.osimage) && inForce !== null) read.osimage = inForce
  return read
}

/** The image in force of a node or a group; null if there is none. */
function imageOf(type: 'node' | 'group', name: string, { model }: Parts): string | null {
  if (type === 'group') {
    const group = model.view.get('group', name)
    return group ? effectiveGroup(group, model.cluster).settings.osimage : null
  }
  const node = model.view.get('node', name)
  return node ? model.effective(node).settings.osimage : null
}

/** The client sends omitted values of a secret as `"content": false` and `"path": null`. */
function readSecrets(given: JsonValue): JsonValue {
  if (Array.isArray(given)) return given.map(readSecrets)
  if (!isObject(given)) return given
  const read = { ...given }
  if (read.content === false) delete read.content
  if (read.path === null) delete read.path
  return read
}

/** Whether an answer is `{"message": …}` and nothing else. */
const isMessage = (body: unknown) => isObject(body) && Object.keys(body).every(key => key === 'message')

/** The conversion of this route's answers, if there is one. */
function shows(path: string): ((answer: Answer, request: ApiRequest, parts: Parts) => Answer) | undefined {
  if (/^\/config\/(?:node|group)(?:\/\{\w+\})?$/.test(path)) return showPlain
  if (/^\/service\/\w+\/status$/.test(path)) return showService
  return path === '/monitor/status' ? showMessages : undefined
}

/** Removes `_variables_source`, an object: the client crashes unless each `_…_source` is a name. */
function showPlain({ json, ...answer }: Answer): Answer {
  // Inside a text the quotes of such a key would be escaped.
  const plain = (part: string) => part.replace(/,\s*"_variables_source":\s*\{[^}]*\}/g, '')
  const parts = function* () {
    for (const part of json ?? []) yield plain(part)
  }
  if (json === undefined) return answer
  return { ...answer, json: typeof json === 'string' ? plain(json) : { [Symbol.iterator]: parts } }
}

/** `{"monitor": {"Service": {"dhcp": "dhcp: running\n…"}}}`. */
function showService(answer: Answer): Answer {
  type Shown = Partial<ServiceState & { readonly state: string; readonly output: string }>
  const { service } = (answer.body as { monitor: { service: Record<string, Shown> } }).monitor
  const text = ([name, { state, reason, output }]: [string, Shown]) =>
    [`${name}: ${state}`, reason, output?.trim()].filter(line => line).join('\n')
  const entries = Object.entries(service).map(entry => [entry[0], text(entry)])
  return { ...answer, body: { monitor: { Service: Object.fromEntries(entries) } } }
}

const messageSchema = object({
  ...{ username_initiator: string(), request_id: string(), read: { type: 'integer' } },
  ...{ message: string(), created: string() }
})

/** Adds the client's messages: about failed services, and about requests. */
function showMessages(answer: Answer, { caller }: ApiRequest, { jobs }: Parts): Answer {
  const body = answer.body as { readonly monitor: { readonly service: Record<string, ServiceState> } }
  const failed = Object.entries(body.monitor.service).filter(([, { status }]) => status === 'failed')
  const messages = [
    ...failed.map(([name, { reason, since }]) => message('svcd', '', `service ${name}: ${reason}`, since)),
    ...jobs.records().map(job => message(job.by, job.id, jobText(job), isoTime(job.ended ?? job.queued)))
  ]
  const status = caller.kind === 'anonymous' ? [] : messages
  return { ...answer, body: { ...body, monitor: { ...body.monitor, status } } }
}

const message = (by: string, id: string, text: string, created: string) => ({
  ...{ username_initiator: by, request_id: id, read: 0, message: text, created }
})
const jobText = ({ kind, object, message }: JobSummary) => `${kind} ${object}: ${message}`
const isoTime = (ms: number) => new Date(ms).toISOString()

/** The client's queue: the requests that have not ended. */
const queue = ({ jobs }: Parts): ApiRoute =>
  get('/monitor/queue', 'user', {
    summary: 'The asynchronous requests that have not ended (dialect luna)',
    output: at('monitor.queue', list(messageSchema)),
    handler: () => {
      const waiting = jobs.records().filter(({ state }) => state === 'queued' || state === 'running')
      return ok({
        monitor: {
          queue: waiting.map(({ by, id, kind, object, state, queued }) => ({
            username_initiator: by,
            queue_id: id,
            request_id: id,
            level: 'maintask',
            status: state === 'queued' ? 'queued' : 'in progress',
            subsystem: object.split(' ')[0] ?? '',
            task: `${kind} ${object}`,
            created: isoTime(queued)
          }))
        }
      })
    }
  })
