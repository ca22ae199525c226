import { type Caller, isAdmin } from '../auth/access.js'
import { forbidden } from '../errors.js'
import type { Answer } from '../http/route.js'
import type { TypeName } from '../model/docs.js'
import { members } from '../model/members.js'
import type { Actor } from '../model/model.js'
import { type Reader, type Seen, see, show, showText } from '../model/output.js'
import { type Given, readObject } from '../model/request.js'
import type { Docs, NodeDoc } from '../model/tables.js'
import { objectTypes } from '../model/types.js'
import { type ApiRequest, type ApiRoute, actorOf, done, type Parts, param, smallBody } from './context.js'
import { config, open } from './envelope.js'
import { shapes } from './shapes.js'

/** What a type's routes answer where types differ (rules 2.1, 5.3). */
export interface ObjectRoutes {
  readonly type: TypeName
  readonly updated: 200 | 204
  readonly cloned: 201 | 204 | undefined
  readonly deleted: 201 | 204
  /** `minimal`: list and single form are readable without a token, names only. */
  readonly readable: 'user' | 'minimal'
  /** Whether `_list` and `_member` give the nodes whose effective value it is. */
  readonly members: boolean
  /** Creates, changes or renames one, where more hangs on it than the object. */
  readonly save?: (name: string, given: Given, actor: Actor) => Promise<{ created: boolean }>
  /** Deletes one, likewise. */
  readonly remove?: (name: string, actor: Actor) => Promise<void>
}

/** How much this caller is shown. */
export function readerFor(parts: Parts, caller: Caller): Reader {
  return { cluster: parts.model.cluster, masked: !isAdmin(caller) }
}

const seen = <K extends TypeName>({ model, status }: Parts, type: K, doc: Docs[K]): Seen<K> =>
  see(type, doc, model.view, node => status.state(node))

/** The routes that every type of object has: list, single, members, save, clone, delete. */
export function objectRoutes(parts: Parts, o: ObjectRoutes): ApiRoute[] {
  const { title } = objectTypes[o.type]
  const base = `/config/${o.type}`
  const one = `${base}/{${o.type}}`
  const name = (request: ApiRequest) => param(request, o.type)
  // An answer of interfaces that is posted back here has them bare beside the envelope (rules 1.1).
  const besides = objectTypes[o.type].interfaces ? ['interfaces'] : []
  const given = (request: ApiRequest) =>
    readObject(
      objectTypes[o.type],
      name(request),
      open(request.body, 'config', [o.type, name(request)], besides)
    )
  const routes: ApiRoute[] = [
    {
      method: 'GET',
      path: base,
      effect: 'reads',
      access: o.readable,
      body: 'ignored',
      codes: o.readable === 'user' ? [200, 401, 503] : [200, 503],
      summary: `All ${title}s`,
      output: shapes.objects(o.type),
      handler: request => list(parts, o.type, request)
    },
    {
      method: 'GET',
      path: one,
      effect: 'reads',
      access: o.readable,
      body: 'ignored',
      codes: o.readable === 'user' ? [200, 401, 404, 503] : [200, 404, 503],
      summary: `One ${title}`,
      output: shapes.objects(o.type),
      handler: request => {
        const doc = parts.model.get(o.type, name(request))
        const shown =
          request.caller.kind === 'anonymous'
            ? { name: doc.name }
            : show(o.type, seen(parts, o.type, doc), readerFor(parts, request.caller))
        return { status: 200, body: config(o.type, { [doc.name]: shown }) }
      }
    },
    {
      method: 'POST',
      path: one,
      effect: 'changes',
      access: o.type === 'node' ? 'node' : 'user',
      body: 'json',
      codes: [201, o.updated, 400, 401, 403, 404, 503],
      summary: `Create, change or rename a ${title}`,
      ...(o.type === 'node' ? { maxBody: caller => (caller.kind === 'node' ? smallBody : Infinity) } : {}),
      input: shapes.objects(o.type),
      handler: async request => {
        const changes = given(request)
        if (request.caller.kind === 'node')
          checkOwnReport(parts.model.get('node', request.caller.node), changes)
        const { created } = o.save
          ? await o.save(name(request), changes, actorOf(request))
          : await parts.model.save(o.type, name(request), changes, actorOf(request))
        return created
          ? done(201, `${title} ${name(request)} created`)
          : done(o.updated, `${title} ${name(request)} updated`)
      }
    }
  ]
  for (const method of ['GET', 'POST'] as const)
    routes.push({
      method,
      path: `${one}/_delete`,
      effect: 'changes',
      access: 'user',
      body: 'ignored',
      codes: [o.deleted, 400, 401, 403, 404, 503],
      summary: `Delete a ${title} that nothing uses`,
      handler: async request => {
        if (o.remove) await o.remove(name(request), actorOf(request))
        else await parts.model.remove(o.type, name(request), actorOf(request))
        return done(o.deleted, `${title} ${name(request)} deleted`)
      }
    })
  if (o.cloned !== undefined) {
    const cloned = o.cloned
    routes.push({
      method: 'POST',
      path: `${one}/_clone`,
      effect: 'changes',
      access: 'user',
      body: 'json',
      codes: [cloned, 400, 401, 403, 404, 503],
      summary: `Copy a ${title} under the name in ${objectTypes[o.type].newName[0]}`,
      input: shapes.objects(o.type),
      handler: async request => {
        const copy = given(request)
        await parts.model.clone(o.type, name(request), copy, actorOf(request))
        return done(cloned, `${title} ${name(request)} cloned to ${copy.newName}`)
      }
    })
  }
  if (o.members)
    for (const suffix of ['_list', '_member'])
      routes.push({
        method: 'GET',
        path: `${one}/${suffix}`,
        effect: 'reads',
        access: 'user',
        body: 'ignored',
        codes: [200, 401, 404, 503],
        summary: `The nodes whose effective ${title} this is`,
        output: shapes.members(o.type),
        handler: request => {
          parts.model.get(o.type, name(request))
          const nodes = members(parts.model.view, o.type, name(request))
          return { status: 200, body: config(o.type, { [name(request)]: { members: nodes } }) }
        }
      })
  return routes
}

/** What a node's own token may post of its node: inventory and the address of an interface (rules 4.8). */
function checkOwnReport(node: NodeDoc, given: Given): void {
  const refuse = (what: string) => forbidden(`the token of node ${node.name} may not change ${what}`)
  for (const field of given.values.keys())
    if (field !== 'vendor' && field !== 'assettag') throw refuse(`field "${field}"`)
  if (given.newName !== undefined) throw refuse('its name')
  for (const { interface: name, force: _, ipaddress, ...rest } of given.interfaces) {
    if (ipaddress === null) throw refuse(`the address of interface ${name} to none`)
    for (const field of Object.keys(rest)) throw refuse(`field "${field}" of interface ${name}`)
    if (!node.interfaces?.some(entry => entry.interface === name))
      throw refuse(`interface ${name}, which the node does not have`)
  }
}

/** All objects of a type as they are at one moment; what changes while the list is written is not in it. */
function list(parts: Parts, type: TypeName, request: ApiRequest): Answer {
  const { view } = parts.model
  const reader = readerFor(parts, request.caller)
  const bare = request.caller.kind === 'anonymous'
  const all = view.names(type).flatMap(name => {
    const doc = view.get(type, name)
    return doc ? [seen(parts, type, doc)] : []
  })
  function* text(): Generator<string> {
    yield `{"config":{"${type}":{`
    for (const [i, one] of all.entries()) {
      const { name } = one.doc
      const shown = bare ? JSON.stringify({ name }) : showText(type, one, reader)
      yield `${i > 0 ? ',' : ''}${JSON.stringify(name)}:${shown}`
    }
    yield '}}}'
  }
  return { status: 200, json: { [Symbol.iterator]: text } }
}
