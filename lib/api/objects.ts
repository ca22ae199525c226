import { type Caller, isAdmin } from '../auth/access.js'
import { forbidden } from '../errors.js'
import type { Answer } from '../http/route.js'
import type { Docs, TypeName } from '../model/docs.js'
import { type EffectiveNode, members as membersOf } from '../model/effective.js'
import type { Actor } from '../model/model.js'
import type { Given } from '../model/object-type.js'
import { type Reader, type Seen, see, show, showText } from '../model/output.js'
import { objectTypes } from '../model/types.js'
import { objectBody } from './body.js'
import { type ApiRequest, type ApiRoute, actorOf, config, done, ok, type Parts, param } from './context.js'
import { deletion, get, members, post } from './row.js'
import { at, list as listOf, object, string } from './schema.js'

/** What is particular to the routes of one type (rules 2.1, 5.3). */
interface Particular {
  readonly updated?: 200
  /** `elsewhere`: the type has a route of its own for it. */
  readonly cloned?: 204 | 'elsewhere'
  readonly deleted?: 201
  /** List and single form are readable without a token, names only. */
  readonly minimal?: true
  /** It has members: the nodes whose effective value it is. */
  readonly members?: true
  /** Creates, changes or renames one, where more changes than the object. */
  readonly save?: (name: string, given: Given, actor: Actor) => Promise<{ created: boolean }>
  /** Deletes one, where more goes than the object. */
  readonly remove?: (name: string, actor: Actor) => Promise<void>
}

/** A title with its article: a node, an OS image, another device. */
const a = (title: string) =>
  `${/^[aeiou]/i.test(title) ? 'an' : 'a'} ${title}`.replace(/^an other/, 'another')

/** The routes that every type of object has: list, single, members, save, clone, delete. */
export function objectRoutes(parts: Parts, type: TypeName, particular: Particular = {}): ApiRoute[] {
  const { model } = parts
  const { updated = 204, cloned = 201, deleted = 204 } = particular
  const { save = (...args) => model.save(type, ...args), remove = (...args) => model.remove(type, ...args) } =
    particular
  const { title, newName } = objectTypes[type]
  const base = `/config/${type}`
  const one = `${base}/{${type}}`
  const nameOf = (request: ApiRequest) => param(request, type)
  const body = objectBody(type)
  const output = body.schema
  const access = particular.minimal ? 'minimal' : 'user'
  const routes = [
    get(base, {
      access,
      summary: `All ${title}${title.endsWith('ch') ? 'es' : 's'}`,
      output,
      handler: request => list(parts, type, request)
    }),
    get(one, {
      access,
      summary: `One ${title}`,
      output,
      handler: request => {
        const doc = model.get(type, nameOf(request))
        const shown =
          request.caller.kind === 'anonymous'
            ? { name: doc.name }
            : show(type, seen(parts, type, doc), readerFor(parts, request.caller))
        return ok(config(type, { [doc.name]: shown }))
      }
    }),
    post(one, {
      access: type === 'node' ? 'node' : 'user',
      answers: [201, updated],
      summary: `Create, change or rename ${a(title)}`,
      body,
      handler: async (request, given) => {
        const name = nameOf(request)
        if (request.caller.kind === 'node')
          checkOwnReport(model.effective(model.get('node', request.caller.node)), given)
        const { created } = await save(name, given, actorOf(request))
        if (created) return done(201, `${title} ${name} created`)
        const { newName: now = name } = given
        return done(updated, `${title} ${name} ${now === name ? 'updated' : `renamed to ${now}`}`)
      }
    }),
    ...deletion(one, {
      access: 'user',
      answers: [deleted],
      summary: `Delete ${a(title)} that nothing uses`,
      handler: async request => {
        await remove(nameOf(request), actorOf(request))
        return done(deleted, `${title} ${nameOf(request)} deleted`)
      }
    })
  ]
  if (cloned !== 'elsewhere')
    routes.push(
      post(`${one}/_clone`, {
        access: 'user',
        answers: [cloned],
        summary: `Copy ${a(title)} under the name in ${newName[0]}`,
        body,
        handler: async (request, given) => {
          await model.clone(type, nameOf(request), given, actorOf(request))
          return done(cloned, `${title} ${nameOf(request)} cloned to ${given.newName}`)
        }
      })
    )
  if (particular.members)
    routes.push(
      ...members(one, {
        access: 'user',
        summary: `The nodes whose effective ${title} this is`,
        output: membersSchema(type),
        handler: request => {
          const { name } = model.get(type, nameOf(request))
          return ok(config(type, { [name]: { members: membersOf(model.view, type, name) } }))
        }
      })
    )
  return routes
}

/** The answer of a `_member`. */
export const membersSchema = (type: TypeName | 'osimagetag') =>
  at(`config.${type}.{${type}}`, object({ members: listOf(string()) }))

/** How much this caller is shown. */
function readerFor(parts: Parts, caller: Caller): Reader {
  return { cluster: parts.model.cluster, masked: !isAdmin(caller) }
}

const seen = <K extends TypeName>({ model, status }: Parts, type: K, doc: Docs[K]): Seen<K> =>
  see(type, doc, model.view, node => status.state(node))

/** What a node's own token may post of its node: inventory and its provision interface's address (rules 4.8). */
function checkOwnReport({ node, provision }: EffectiveNode, given: Given): void {
  const refuse = (what: string) => forbidden(`the token of node ${node.name} may not change ${what}`)
  for (const field of given.values.keys())
    if (field !== 'vendor' && field !== 'assettag') throw refuse(`field "${field}"`)
  if (given.newName !== undefined) throw refuse('its name')
  for (const { interface: name, force: _, ipaddress, ...rest } of given.interfaces) {
    if (ipaddress === null) throw refuse(`the address of interface ${name} to none`)
    for (const field of Object.keys(rest)) throw refuse(`field "${field}" of interface ${name}`)
    if (name !== provision?.interface) throw refuse(`interface ${name}, which is not its provision interface`)
  }
}

/** All objects of a type as they are at this moment, whatever changes while the list is sent (rules 1.12). */
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
