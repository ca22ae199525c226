import { groupsOf, isAdmin } from '../auth/access.js'
import { changedMeanwhile, ServiceError } from '../base/errors.js'
import { EntityTag, readIfMatch } from '../http/entity-tag.js'
import type { Answer } from '../http/route.js'
import type { Model } from '../model/model.js'
import type { View } from '../model/stored.js'
import { exportText } from '../model/transfer.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, replaced, whenReady } from './context.js'
import { hasDryRun } from './dry-run.js'
import { formOf } from './listing.js'

/** Requests, tokens of programs and exports are no configuration. */
const ofConfiguration = /^\/config\/(?!(?:status|token|export)(?:\/|$))/

/** Whether the answers of a route have an entity tag: all that reads the configuration. */
export const hasEntityTag = ({ path, effect }: ApiRoute) => effect === 'reads' && ofConfiguration.test(path)

/** Whether a route takes If-Match: all changes of the configuration. */
export const takesIfMatch = ({ path, effect }: ApiRoute) => effect === 'changes' && ofConfiguration.test(path)

/** GETs whose entity tag a change takes, where that is not the nearest one above it. */
const readBefore: Readonly<Record<string, string>> = {
  '/config/cluster/import': '/config/cluster/export',
  // A machine's last proof is no configuration.
  '/config/node/{node}/_trust': '/config/node/{node}',
  '/config/osimage/{osimage}/tag': '/config/osimagetag/{osimage}',
  '/config/osimage/{osimage}/osimagetag/{tagname}/_delete': '/config/osimagetag/{osimage}'
}

/** Adds ETag to what reads the configuration, and If-Match to what changes it (rules 2.21). */
export function withPreconditions(
  routes: readonly ApiRoute[],
  parts: Parts,
  rows: (parts: Parts) => readonly ApiRoute[]
): ApiRoute[] {
  // Of the transaction in which a precondition is checked: there is one at a time.
  let view: View | undefined
  let readers: ReadonlyMap<string, ApiRoute> | undefined
  const inside = () => {
    const model = parts.model.reading(() => view ?? parts.model.view)
    const found = rows({ ...parts, model }).filter(hasEntityTag)
    return new Map(found.map(route => [route.path, inTransaction(route, model)]))
  }
  /** Returns the GET of what `path` changes. It reads the view of the transaction. */
  const readerOf = (path: string): ApiRoute => {
    readers ??= inside()
    for (let at = readBefore[path] ?? path; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
      const found = readers.get(at)
      if (found) return found
    }
    throw new TypeError(`nothing reads what ${path} changes`)
  }
  const conditional = (route: ApiRoute): ApiRoute => ({
    ...route,
    codes: [...route.codes, 412],
    handler: async request => {
      const header = request.headers['if-match']
      if (header === undefined) return route.handler(request)
      const [wanted, reader] = [readIfMatch(header), readerOf(route.path)]
      const precondition = function* (now: View) {
        view = now
        try {
          yield* check(reader, request, wanted)
        } finally {
          view = undefined
        }
      }
      try {
        if (hasDryRun(route) || route.path === '/config/cluster/import')
          return await route.handler(replaced(request, { precondition }))
        // Work that takes time has to fit when it begins: it is no single change.
        await parts.model.change({ ...actorOf(request), precondition }, () => {})
        return await route.handler(request)
      } catch (error) {
        if (!(error instanceof ServiceError) || error.status !== 412) throw error
        throw changedMeanwhile(`${error.message}${await lastChange(parts, request, reader)}; read it again`)
      }
    }
  })
  return routes.map(route =>
    hasEntityTag(route) ? withETag(route) : takesIfMatch(route) ? conditional(route) : route
  )
}

/** A transaction cannot wait, and an export does, to check the secrets. */
const inTransaction = (route: ApiRoute, model: Model): ApiRoute =>
  route.path !== '/config/cluster/export'
    ? route
    : { ...route, handler: ({ caller }) => ({ status: 200, json: exportText(model, !isAdmin(caller)) }) }

const withETag = (route: ApiRoute): ApiRoute => ({
  ...route,
  handler: request => whenReady(route.handler(request), answer => addETag(answer, request))
})

/** Adds the entity tag of the whole text to an answer that has none of its own. */
function addETag(answer: Answer, request: ApiRequest): Answer {
  const { body, json } = answer
  if (answer.etag || answer.status !== 200 || (body ?? json) === undefined) return answer
  const texts = json === undefined || typeof json === 'string' ? [json ?? JSON.stringify(body)] : json
  const parts = function* () {
    for (const text of texts) yield [text, ''] as const
  }
  return { ...answer, etag: new EntityTag(parts, formOf(request)) }
}

/** Throws 412 unless a GET would have one of these states now. */
function* check(reader: ApiRoute, request: ApiRequest, wanted: '*' | readonly string[]) {
  const what = `GET ${placeOf(reader, request)}`
  const { nodes } = (request.body ?? {}) as { readonly nodes?: unknown }
  const set = typeof nodes === 'string' && reader.path === '/config/node' ? { nodes } : undefined
  const query = new URLSearchParams(set)
  let answer: Answer
  try {
    answer = reader.handler(replaced(request, { query, target: '' })) as Answer
    if (wanted === '*') return
    const { etag } = addETag(answer, request)
    yield* etag?.making() ?? []
    if (etag && wanted.includes(etag.state)) return
  } catch (error) {
    if (!(error instanceof ServiceError) || error.status !== 404) throw error
    throw changedMeanwhile(`${error.message}: ${what} has nothing that If-Match could name`)
  }
  throw changedMeanwhile(
    `${what} no longer gives what the ETag in If-Match names: it has changed, or what it inherits`
  )
}

const placeOf = ({ path }: ApiRoute, { params }: ApiRequest) =>
  path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))

/** Tells the last change of the object in the path, if the audit log has it among its last lines. */
async function lastChange({ audit, model }: Parts, request: ApiRequest, reader: ApiRoute): Promise<string> {
  // A node may not read the audit log.
  if (request.caller.kind === 'node') return ''
  const [, , type, ...names] = decodeURIComponent(placeOf(reader, request)).split('/')
  const groups = groupsOf(request.caller)
  // A limited caller changes nodes alone.
  const isSeen = (node: unknown) =>
    !groups || groups.includes(model.view.get('node', String(node))?.group ?? '')
  // The secrets of node n1 are those of node.n1.
  const name = type === 'secrets' ? names.slice(0, 2).join('.') : names[0]
  const logs = await Promise.all([audit.last('users'), audit.last('machines')]).catch(() => [])
  const lines = logs.flatMap(({ lines }) => lines) as Readonly<Record<string, unknown>>[]
  const [last] = lines
    .filter(line => line.type === type && (line.name === name || name === undefined) && isSeen(line.name))
    .sort((a, b) => String(b.time).localeCompare(String(a.time)))
  if (!last) return ''
  const [before, after] = [last.before ?? {}, last.after ?? {}] as Readonly<Record<string, unknown>>[]
  const fields = Object.keys({ ...before, ...after }).filter(
    field => JSON.stringify(before?.[field]) !== JSON.stringify(after?.[field])
  )
  const named = `${last.action} ${type} ${last.name ?? ''}`.trim()
  return `; last by ${last.who} at ${last.time}: ${named} (${fields.slice(0, 12).join(', ')})`
}
