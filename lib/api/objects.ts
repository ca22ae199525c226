import { type Caller, groupsOf, isAdmin, type Limit } from '../auth/access.js'
import { asPauses, filterInSteps, runFairly } from '../base/concurrency.js'
import { badRequest, forbidden, notFound } from '../base/errors.js'
import { addTo } from '../base/lists.js'
import { ascii, oneLine } from '../base/log.js'
import { missingRoles } from '../boot/roles.js'
import { layoutWarnings } from '../disk-layout/check.js'
import type { EntityTagPart } from '../http/entity-tag.js'
import type { Answer } from '../http/route.js'
import {
  type AnswerOptions,
  type AnswerSource,
  answerSourceOf,
  show,
  showInterfaces,
  showState,
  showText
} from '../model/answer.js'
import { removeAll, saveAll } from '../model/bulk.js'
import type { TypeName } from '../model/docs.js'
import { type EffectiveNode, findNodesUsing } from '../model/effective.js'
import { anObject, array, freeText, type Table } from '../model/field.js'
import type { Actor } from '../model/model.js'
import type { ObjectPatch } from '../model/object-type.js'
import { readInterfaces, readObject } from '../model/request.js'
import type { View } from '../model/stored.js'
import { countObjects, objectTypes, plural } from '../model/types.js'
import { warningsOf } from '../model/warnings.js'
import { runningAnswer } from '../monitor/stale.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { forMessage } from '../node-set/hostlist.js'
import {
  type ApiRequest,
  type ApiRoute,
  actorOf,
  config,
  done,
  expecting,
  ok,
  okTwice,
  type Parts,
  param
} from './context.js'
import { type Entry, isCustomized, type Listing, listed, listQuery, withArticle } from './listing.js'
import { changedNodesFor, nodesFor } from './node-sets.js'
import { parameterOf } from './params.js'
import { bodyOf, deletion, get, members, objectBody, post } from './row.js'
import { at, list, object, ref, string, twice } from './schema.js'

/** Options for the routes of one type (rules 2.1, 5.3). */
interface ObjectRouteOptions {
  readonly updated?: 200
  /** `own-route`: the type has a route of its own for it. */
  readonly cloned?: 204 | 'own-route'
  readonly deleted?: 201
  /** List and single form are readable without a token, names only. */
  readonly minimal?: true
  /** It has members: the nodes whose effective value it is. */
  readonly members?: true
  /** Default fields of a list as text. */
  readonly columns?: readonly string[]
  /** Replaces `Model.save` when more than the object changes. */
  readonly save?: (name: string, given: ObjectPatch, actor: Actor) => Promise<{ created: boolean }>
  /** Replaces `Model.remove` when more than the object is deleted. */
  readonly remove?: (name: string, actor: Actor) => Promise<void>
}

function rolesWithoutFile({ model, config }: Parts, type: TypeName, name: string): string[] {
  const doc = type === 'group' || type === 'node' ? model.view.get(type, name) : undefined
  return doc ? missingRoles(config.paths.roles, [['it', doc]]) : []
}

type Fields = ReadonlySet<string>
/** Finds the nodes of a set. */
type Picker = (view: View) => Generator<unknown, readonly string[]>

/** Maximum number of objects that are checked for warnings: their slips are alike. */
export const MOST_CHECKED = 50

/** Returns a function that returns the slips that a change of `fields` has added since (rules 3.17). */
export function findWarnings(
  parts: Parts,
  type: TypeName,
  names: readonly string[],
  fields: Fields
): (now?: readonly string[]) => Promise<string[]> {
  const { model, nodeFiles } = parts
  // Role files are checked only if the request names roles.
  const looseNow = (name: string) => [
    ...warningsOf(model.view, type, name, model.cluster),
    ...(fields.has('roles') ? rolesWithoutFile(parts, type, name) : [])
  ]
  const before = names.slice(0, MOST_CHECKED).map(looseNow)
  return async (now = names) => {
    const found = new Map<string, string[]>()
    for (const [i, told] of before.entries())
      for (const sentence of looseNow(now[i] as string).filter(one => !told.includes(one)))
        addTo(found, sentence, now[i] as string)
    const loose = [...found].map(([sentence, of]) =>
      names.length === 1
        ? sentence.replace(/^it (?=has )/, `${objectTypes[type].title} ${of[0]} `)
        : `${of[0]}${of.length > 1 ? ` and ${of.length - 1} more` : ''}: ${sentence}`
    )
    loose.push(...(await diskProblems(parts, type, now, fields)))
    const isOfNodes = type === 'file' || type === 'group' || type === 'node'
    // A node also gets the value of its group.
    if (isOfNodes && (fields.has('trust') || fields.has('group')))
      loose.push(...(await unprovenOf(parts, await nodesOf(parts, type, now))))
    const [first = ''] = now
    const rendered = ['template', 'files', 'variables'].some(field => fields.has(field))
    if (!rendered || !isOfNodes || !model.view.get(type, first)) return loose
    const [node] = await nodesOf(parts, type, now)
    // A full queue and unreadable secrets are reported elsewhere.
    const isWanted = (file: string) => type !== 'file' || file === first
    const failed = node ? await nodeFiles.problems(node, isWanted, true).catch(() => []) : []
    return [
      ...loose,
      ...failed.map(({ name, problem }) => `file ${name} cannot be rendered for node ${node}: ${problem}`)
    ]
  }
}

/** Returns the settings in force of a node; undefined without such a node. */
function settingsOf({ model }: Parts, name: string): EffectiveNode['settings'] | undefined {
  const node = model.view.get('node', name)
  return node && model.effective(node).settings
}

/** Returns a warning if nodes that have to prove themselves did not. */
async function unprovenOf(parts: Parts, names: readonly string[]): Promise<string[]> {
  const required = filterInSteps(names, name => settingsOf(parts, name)?.trust === 'require')
  return parts.trust.warningsOf(await runFairly(required))
}

/** Returns the nodes of a changed object, or the changed nodes. */
async function nodesOf({ model: { view } }: Parts, type: TypeName, names: readonly string[]) {
  const [first = ''] = names
  if (type === 'node') return names
  if (type === 'group') return view.index.members(first)?.all.values ?? []
  return runFairly(findNodesUsing(view, type, first))
}

/** Fields whose change makes, moves or reinstalls the disks of nodes. */
const diskFields = ['disklayout', 'disks', 'volumegroups', 'netboot', 'partscript', 'group']

/** Returns what inventories say against the disk layouts of these objects' nodes (rules 4.39). */
async function diskProblems(parts: Parts, type: TypeName, names: readonly string[], fields: Fields) {
  const { model, inventories } = parts
  const [changed, ...others] = diskFields.filter(field => fields.has(field))
  if (changed === undefined || (type !== 'node' && type !== 'group' && type !== 'disklayout')) return []
  const nodes = await nodesOf(parts, type, names)
  // Without a boot from the network nothing is installed.
  const isBooted = (name: string) => settingsOf(parts, name)?.netboot === true
  const judged = changed === 'netboot' && others.length === 0 ? nodes.filter(isBooted) : nodes
  return layoutWarnings(model, judged.slice(0, MOST_CHECKED), node => inventories.disksOf(node))
}

/** Maximum length of all warnings in bytes. */
const MOST_WARNINGS = 2000

/** Adds warnings as X-Svcd-Warning, as most answers to changes have no body (rules 3.17). */
export function withWarnings(answer: Answer, warnings: readonly string[]): Answer {
  if (warnings.length === 0) return answer
  const text = ascii(oneLine(warnings.join('; '), MOST_WARNINGS))
  return { ...answer, headers: { ...answer.headers, 'X-Svcd-Warning': text } }
}

/** The routes of every type of object: list, single, members, save, clone, delete. */
export function objectRoutes(parts: Parts, type: TypeName, particular: ObjectRouteOptions = {}): ApiRoute[] {
  const { cloned = 201 } = particular
  return [
    ...readRoutes(parts, type, particular),
    saveRoute(parts, type, particular),
    ...deleteRoutes(parts, type, particular),
    ...(cloned === 'own-route' ? [] : [cloneRoute(parts, type, cloned)]),
    ...(type === 'node' ? setRoutes(parts) : []),
    ...(particular.members ? memberRoutes(parts, type) : [])
  ]
}

const baseOf = (type: TypeName) => `/config/${type}`
const pathOf = (type: TypeName) => `${baseOf(type)}/{${parameterOf(type)}}`
const nameOf = (request: ApiRequest, type: TypeName) => param(request, parameterOf(type))
/** In place of the name of a node, a set of nodes (rules 12.3). */
const takesSets = (type: TypeName) => (type === 'node' ? ({ sets: true } as const) : {})

/** How the routes for one object of a type respect a limit to groups. */
const limitOf = (type: TypeName): Limit | undefined =>
  type === 'node' || type === 'group' ? type : undefined

/** Fields of nodes that operators may set: those that have a node installed anew, or rescued (rules 5.2). */
const operatorFields: ReadonlySet<string> = new Set(['netboot', 'netboot_once', 'rescue'])

/**
 * Evaluates a set in the path; undefined for a plain name, unless the caller is no admin: for an operator a
 * change creates nothing, and groups are compared in its transaction.
 */
function picked(parts: Parts, request: ApiRequest, type: TypeName, isChange = false) {
  const { caller } = request
  const name = nameOf(request, type)
  const isOperators = isChange && isOperator(caller)
  if (type !== 'node' || !(isNodeSet(name) || isOperators || groupsOf(caller))) return undefined
  const find = isChange ? changedNodesFor : nodesFor
  return (view: View) => find(parts, caller, name, view)
}

const isOperator = (caller: Caller) => caller.kind === 'user' && caller.role === 'operator'

/** Throws 403 unless an operator changes only what has nodes installed anew, or rescued. */
function checkOperator({ caller }: ApiRequest, { values, interfaces, newName }: ObjectPatch): void {
  if (!isOperator(caller)) return
  const field = [...values.keys()].find(name => !operatorFields.has(name))
  if (field === undefined && newName === undefined && interfaces.length === 0) return
  const what = field ? `field "${field}"` : 'names or interfaces'
  const may = [...operatorFields].join(', ')
  throw forbidden(`an operator may not change ${what} of a node, only ${may}`, 'role-not-permitted')
}

function readRoutes(parts: Parts, type: TypeName, particular: ObjectRouteOptions): ApiRoute[] {
  const { model } = parts
  const { columns } = particular
  const isNodes = type === 'node'
  const { title, fields }: { title: string; fields: Table } = objectTypes[type]
  const output = objectBody(type).schema
  const access = particular.minimal ? 'minimal' : 'user'
  const listing: Listing = {
    ...{ title, place: `config.${type}.{${type}}`, item: ref(type) },
    secret: fields.flatMap(({ name, secret }) => (secret ? name : [])),
    ...(columns ? { columns } : {})
  }
  const listOf = (request: ApiRequest, pick?: Picker) =>
    listed(request, listing, function* () {
      // Sets are evaluated in steps: a node may have been deleted meanwhile.
      const picked = pick && asPauses(pick(model.view))
      const names = picked
        ? (yield* picked).filter(name => model.view.get(type, name))
        : (groupsOf(request.caller)?.filter(name => model.view.get(type, name)) ?? model.view.names(type))
      return entriesOf(parts, type, names, request.caller)
    })
  return [
    get(baseOf(type), access, {
      limited: limitOf(type) && 'filtered',
      summary: `All ${plural(title)}`,
      query: { ...listQuery, ...(isNodes ? { nodes: string('a node set: these nodes only') } : {}) },
      output,
      handler: request => {
        const wanted = request.query.get('nodes')
        const isPart = wanted !== null || groupsOf(request.caller) !== undefined
        const pick = (view: View) => nodesFor(parts, request.caller, wanted, view)
        return listOf(request, isNodes && isPart ? pick : undefined)
      }
    }),
    get(pathOf(type), access, {
      limited: isNodes ? 'filtered' : limitOf(type),
      ...takesSets(type),
      summary: `One ${title}`,
      query: listQuery,
      output,
      handler: request => {
        const pick = picked(parts, request, type)
        if (pick) return listOf(request, pick)
        return listed(request, listing, entriesOf(parts, type, [nameOf(request, type)], request.caller))
      }
    })
  ]
}

const expectQuery = { expect: string('the "mark" of a dry run: change only if it still has that outcome') }

function saveRoute(parts: Parts, type: TypeName, particular: ObjectRouteOptions): ApiRoute {
  const { model } = parts
  const { updated = 204, save = (...args) => model.save(type, ...args) } = particular
  const isNode = type === 'node'
  const { title } = objectTypes[type]
  return post(pathOf(type), isNode ? 'node' : 'user', {
    // The handler checks the fields of an operator and the groups of a limited caller (`saveSet`).
    ...(isNode ? ({ operator: true, limited: 'filtered' } as const) : {}),
    ...takesSets(type),
    answers: isNode ? [201, updated, 200] : [201, updated],
    summary: `Create, change or rename ${withArticle(title)}`,
    query: expectQuery,
    body: objectBody(type),
    handler: async (request, given) => {
      const name = nameOf(request, type)
      const pick = picked(parts, request, type, true)
      if (pick) return saveSet(parts, name, pick, given, request)
      if (request.caller.kind === 'node') {
        checkOwnReport(model.effective(model.get('node', request.caller.node)), given)
        parts.status.countOwnChange(request.caller.node)
      }
      const { newName: now = name } = given
      const found = findWarnings(parts, type, [name], new Set(given.values.keys()))
      const { created } = await save(name, given, expecting(request))
      const how = now === name ? 'updated' : `renamed to ${now}`
      return withWarnings(
        created ? done(201, `${title} ${name} created`) : done(updated, `${title} ${name} ${how}`),
        request.dryRun ? [] : await found([now])
      )
    }
  })
}

function deleteRoutes(parts: Parts, type: TypeName, particular: ObjectRouteOptions): ApiRoute[] {
  const { model } = parts
  const { deleted = 204, remove = (...args) => model.remove(type, ...args) } = particular
  const { title } = objectTypes[type]
  return deletion(pathOf(type), 'user', {
    ...takesSets(type),
    answers: type === 'node' ? [deleted, 200] : [deleted],
    summary: `Delete ${withArticle(title)} that nothing uses`,
    handler: async request => {
      const pick = picked(parts, request, type)
      if (pick) {
        const count = await removeAll(model, type, pick, actorOf(request))
        return done(200, `${countObjects(type, count)} deleted`)
      }
      await remove(nameOf(request, type), actorOf(request))
      return done(deleted, `${title} ${nameOf(request, type)} deleted`)
    }
  })
}

function cloneRoute(parts: Parts, type: TypeName, cloned: 201 | 204): ApiRoute {
  const { title, newName } = objectTypes[type]
  return post(`${pathOf(type)}/_clone`, 'user', {
    answers: [cloned],
    summary: `Copy ${withArticle(title)} under the name in ${newName[0]}`,
    body: objectBody(type),
    handler: async (request, given) => {
      await parts.model.clone(type, nameOf(request, type), given, actorOf(request))
      const { newName = '' } = given
      return withWarnings(
        done(cloned, `${title} ${nameOf(request, type)} cloned to ${newName}`),
        type === 'node' && !request.dryRun ? await unprovenOf(parts, [newName]) : []
      )
    }
  })
}

function memberRoutes({ model }: Parts, type: TypeName): ApiRoute[] {
  const { title } = objectTypes[type]
  return members(pathOf(type), 'user', {
    limited: type === 'group' ? 'group' : undefined,
    summary: `The nodes whose effective ${title} this is`,
    query: listQuery,
    output: membersSchema(type),
    handler: request => {
      const { name } = model.get(type, nameOf(request, type))
      return membersAnswer(request, type, findNodesUsing(model.view, type, name))
    }
  })
}

/** Changes all nodes of a set in the same way, or none. */
async function saveSet(parts: Parts, set: string, pick: Picker, given: ObjectPatch, request: ApiRequest) {
  const { model } = parts
  checkOperator(request, given)
  if (given.newName !== undefined) throw badRequest(`node set ${set}: a set cannot be renamed`, 'invalid-set')
  const fields = new Set(given.values.keys())
  const picked = () => runFairly(pick(model.view), request)
  const names = request.dryRun ? [] : await picked()
  const onlyBoots = diskFields.every(field => fields.has(field) === (field === 'netboot'))
  // A dry run judges the nodes that it changes; those that boot from the network already are judged here.
  if (request.dryRun && onlyBoots && given.values.get('netboot') === true)
    request.warnings?.push(...(await diskProblems(parts, 'node', await picked(), fields)))
  const found = findWarnings(parts, 'node', names, fields)
  const count = await saveAll(model, 'node', pick, given, expecting(request))
  return withWarnings(done(200, `${countObjects('node', count)} updated`), await found())
}

/** Changes and deletes a set given in the body, for sets that are too long for a path (rules 12.9). */
function setRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const pick =
    (set: string, { caller }: ApiRequest) =>
    (view: View) =>
      changedNodesFor(parts, caller, set, view)
  const nodes = { type: freeText, required: true, meaning: 'a node set' } as const
  return [
    post('/config/node/_set', 'user', {
      operator: true,
      limited: 'filtered',
      refuses: [404],
      summary: 'Change all nodes of a set in the same way, or none',
      query: expectQuery,
      body: bodyOf(
        { about: 'node set' },
        { nodes, fields: { type: anObject, required: true, meaning: 'the fields of a node' } },
        ({ nodes: set, fields }) => {
          const about = { ...objectTypes.node, title: 'node set' }
          return { set, given: readObject(about, forMessage(set), fields) }
        }
      ),
      handler: (request, { set, given }) =>
        saveSet(parts, forMessage(set), pick(set, request), given, request)
    }),
    post('/config/node/_delete', 'user', {
      refuses: [404],
      summary: 'Delete all nodes of a set, or none',
      body: bodyOf({ about: 'node set' }, { nodes }),
      handler: async (request, { nodes: set }) => {
        const count = await removeAll(model, 'node', pick(set, request), actorOf(request))
        return done(200, `${countObjects('node', count)} deleted`)
      }
    })
  ]
}

/** The nodes that are members of the object in the path. */
export async function membersAnswer(
  request: ApiRequest,
  type: TypeName | 'osimagetag',
  finding: Generator<unknown, string[]>
): Promise<Answer> {
  const owner = type === 'osimagetag' ? 'osimage' : parameterOf(type)
  if (!isCustomized(request)) {
    const members = await runFairly(finding, request)
    return ok(config(type, { [param(request, owner)]: { members } }))
  }
  const item = object({ name: string() })
  const listing = { title: 'member', place: `config.${type}.{${owner}}.members`, item }
  return listed(request, listing, function* () {
    const members = yield* asPauses(finding)
    return members.map(name => ({ name, values: () => ({ name }) }))
  })
}

/** Returns the schema of a list of members. */
export const membersSchema = (type: TypeName | 'osimagetag') =>
  at(`config.${type}.{${type}}`, object({ members: list(string()) }))

/** Throws 403 unless a node reports only its inventory and its provision address (rules 4.8). */
function checkOwnReport({ node, provision }: EffectiveNode, given: ObjectPatch): void {
  const refuse = (what: string) =>
    forbidden(`the token of node ${node.name} may not change ${what}`, 'node-not-permitted')
  for (const field of given.values.keys())
    if (field !== 'vendor' && field !== 'assettag') throw refuse(`field "${field}"`)
  if (given.newName !== undefined) throw refuse('its name')
  for (const { interface: name, force: _, ipaddress, ...rest } of given.interfaces) {
    if (ipaddress === null) throw refuse(`the address of interface ${name} to none`)
    for (const field of Object.keys(rest)) throw refuse(`field "${field}" of interface ${name}`)
    if (name !== provision?.interface) throw refuse(`interface ${name}, which is not its provision interface`)
  }
}

/** A snapshot of one object of a list. Those of a waiting list are in memory: they share what they can. */
class ListedObject<K extends TypeName> implements Entry {
  constructor(
    private readonly list: { readonly type: K; readonly reader: AnswerOptions },
    private readonly seen: AnswerSource<K>
  ) {}

  get name(): string {
    return this.seen.doc.name
  }

  values(): Record<string, unknown> {
    return show(this.list.type, this.seen, this.list.reader)
  }

  json(): string {
    return showText(this.list.type, this.seen, this.list.reader)
  }

  etag(): EntityTagPart {
    const { status, runs } = this.seen
    const reported = status === null && !runs ? '' : JSON.stringify([status, runs])
    return [showState(this.list.type, this.seen, this.list.reader), reported]
  }
}

/** A snapshot of objects, independent of changes while it is sent (rules 1.12). */
function entriesOf(parts: Parts, type: TypeName, names: readonly string[], caller: Caller): Entry[] {
  const { model, status, boots } = parts
  const stateOf = (node: string) => status.state(node)
  const runs = (node: string) => runningAnswer(model, boots, node)
  const list = { type, reader: { cluster: model.cluster, masked: !isAdmin(caller) } }
  const isAnonymous = caller.kind === 'anonymous'
  return names.map(name => {
    const doc = model.get(type, name)
    if (isAnonymous) return { name, values: () => ({ name }) }
    return new ListedObject(list, answerSourceOf(type, doc, model.view, stateOf, runs))
  })
}

/** The interfaces of groups and of nodes (rules 1.1, 1.9, 3.5). */
export function interfaceRoutes({ model }: Parts, type: 'group' | 'node'): ApiRoute[] {
  const table = objectTypes[type].interfaces ?? []
  const base = `/config/${type}/{${type}}/interfaces`
  const place = `config.${type}.{${type}}`
  const listing: Listing = { title: 'interface', place: `${place}.interfaces`, item: ref('interface') }
  const output = twice(place, { interfaces: list(ref('interface')) })
  const body = {
    ...bodyOf(
      { about: `${type} {${type}}`, at: place, besides: ['interfaces'] },
      { interfaces: { type: array, required: true, meaning: 'those to add or change' } },
      ({ interfaces }, about) => readInterfaces(about, interfaces, table)
    ),
    schema: output
  }
  const nameOf = (request: ApiRequest) => param(request, type)
  const limited = limitOf(type)
  const shown = (name: string) => {
    const doc = model.get(type, name)
    return showInterfaces(table, doc, answerSourceOf(type, doc, model.view, () => null).group)
  }
  return [
    get(base, 'user', {
      limited,
      summary: `The interfaces of a ${type}`,
      query: listQuery,
      output,
      handler: request => {
        const interfaces = shown(nameOf(request))
        if (!isCustomized(request)) return okTwice(type, nameOf(request), { interfaces })
        return listed(
          request,
          listing,
          interfaces.map(values => ({ name: String(values.interface), values: () => values }))
        )
      }
    }),
    get(`${base}/{interface}`, 'user', {
      limited,
      summary: `One interface of a ${type}`,
      output,
      handler: request => {
        const [name, wanted] = [nameOf(request), param(request, 'interface')]
        const found = shown(name).find(entry => entry.interface === wanted)
        if (!found) throw notFound(`${type} ${name} has no interface ${wanted}`, 'no-interface')
        return okTwice(type, name, { interfaces: [found] })
      }
    }),
    post(base, 'user', {
      answers: type === 'group' ? [201, 204] : [204],
      summary: `Add or change interfaces of a ${type}`,
      body,
      handler: async (request, given) => {
        const name = nameOf(request)
        const added = await model.saveInterfaces(type, name, given, actorOf(request))
        return done(type === 'group' && added ? 201 : 204, `interfaces of group ${name} created`)
      }
    }),
    ...deletion(`${base}/{interface}`, 'user', {
      summary: `Delete one interface of a ${type}`,
      handler: async request => {
        const [name, wanted] = [nameOf(request), param(request, 'interface')]
        await model.removeInterface(type, name, wanted, actorOf(request))
        return { status: 204 }
      }
    })
  ]
}
