import { badRequest, notFound } from '../errors.js'
import type { Answer } from '../http/route.js'
import type { JsonValue } from '../json.js'
import { showGroupInterfaces, showNodeInterfaces } from '../model/output.js'
import { readInterfaces } from '../model/request.js'
import { type ApiRequest, type ApiRoute, actorOf, done, type Parts, param } from './context.js'
import { open } from './envelope.js'
import { shapes } from './shapes.js'

type Owner = 'group' | 'node'

/** `{interfaces}` of one object in its envelope, and bare beside it (rules 1.1). */
function answer(type: Owner, name: string, interfaces: readonly object[]): Answer {
  return { status: 200, body: { config: { [type]: { [name]: { interfaces } } }, interfaces } }
}

/** The interfaces of groups and of nodes (rules 1.9, 3.5). */
export function interfaceRoutes(parts: Parts, type: Owner): ApiRoute[] {
  const { model } = parts
  const base = `/config/${type}/{${type}}/interfaces`
  const nameOf = (request: ApiRequest) => param(request, type)
  const shown = (name: string) =>
    type === 'group'
      ? showGroupInterfaces(model.get('group', name))
      : showNodeInterfaces(model.view, model.get('node', name))
  const one = (request: ApiRequest) => {
    const [name, wanted] = [nameOf(request), param(request, 'interface')]
    const found = shown(name).find(entry => entry.interface === wanted)
    if (!found) throw notFound(`${type} ${name} has no interface ${wanted}`)
    return found
  }
  const routes: ApiRoute[] = [
    {
      method: 'GET',
      path: base,
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401, 404, 503],
      summary: `The interfaces of a ${type}`,
      output: shapes.interfaces(type),
      handler: request => answer(type, nameOf(request), shown(nameOf(request)))
    },
    {
      method: 'GET',
      path: `${base}/{interface}`,
      effect: 'reads',
      access: 'user',
      body: 'ignored',
      codes: [200, 401, 404, 503],
      summary: `One interface of a ${type}`,
      output: shapes.interfaces(type),
      handler: request => answer(type, nameOf(request), [one(request)])
    },
    {
      method: 'POST',
      path: base,
      effect: 'changes',
      access: 'user',
      body: 'json',
      codes: type === 'group' ? [201, 204, 400, 401, 403, 404, 503] : [204, 400, 401, 403, 404, 503],
      summary: `Add or change interfaces of a ${type}`,
      input: shapes.interfaces(type),
      handler: async request => {
        const name = nameOf(request)
        const given = givenIn(type, name, open(request.body, 'config', [type, name], ['interfaces']))
        const added = await model.saveInterfaces(type, name, given, actorOf(request))
        const isNew = type === 'group' && added
        return done(isNew ? 201 : 204, `interfaces of ${type} ${name} created`)
      }
    }
  ]
  for (const method of ['GET', 'POST'] as const)
    routes.push({
      method,
      path: `${base}/{interface}/_delete`,
      effect: 'changes',
      access: 'user',
      body: 'ignored',
      codes: [204, 400, 401, 403, 404, 503],
      summary: `Delete one interface of a ${type}`,
      handler: async request => {
        const [name, wanted] = [nameOf(request), param(request, 'interface')]
        if (type === 'group') await model.removeGroupInterface(name, wanted, actorOf(request))
        else await model.removeNodeInterface(name, wanted, actorOf(request))
        return { status: 204 }
      }
    })
  return routes
}

function givenIn(type: Owner, name: string, inner: JsonValue) {
  const object = `${type} ${name}`
  if (typeof inner !== 'object' || inner === null || Array.isArray(inner))
    throw badRequest(`${object}: the body must be an object with "interfaces"`)
  for (const key of Object.keys(inner))
    if (key !== 'interfaces' && key !== 'name' && !key.startsWith('_'))
      throw badRequest(`${object}: there is no field "${key}" here, only "interfaces"`)
  if (!Object.hasOwn(inner, 'interfaces')) throw badRequest(`${object}: field "interfaces" is missing`)
  return readInterfaces(object, inner.interfaces as JsonValue, type === 'node')
}
