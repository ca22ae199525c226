import { badRequest, notFound, ServiceError } from '../base/errors.js'
import type { Answer } from '../http/route.js'
import { formatAddress, toAddress } from '../model/address.js'
import type { Actor, Model } from '../model/model.js'
import { looksLikeAddress } from '../model/names.js'
import { isTaken, networkOf, nextFree, takenIn } from '../model/networks.js'
import type { ObjectPatch } from '../model/object-type.js'
import { renumber } from '../model/renumber.js'
import { type ApiRoute, actorOf, config, done, ok, okTwice, type Parts, param } from './context.js'
import { isCustomized, listed, listQuery } from './listing.js'
import { objectRoutes, withWarnings } from './objects.js'
import { get, members, objectBody, post } from './row.js'
import { at, list, object, string, twice, word } from './schema.js'

const place = 'config.network.{network}'
const inUseSchema = object({ ipaddress: string(), device: string() })
const addressState = object({ status: word('free', 'taken') })

function stateOf(model: Model, name: string, ipaddress: string): Answer {
  model.get('network', name)
  const taken = isTaken(model.view, name, toAddress(ipaddress), model.cluster)
  const state = { [ipaddress]: { status: taken ? 'taken' : 'free' } }
  return ok({ ...config('network', state), ...state })
}

/** The routes that every type of object has. */
function networkObjectRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  // `/config/network/{address}` finds the network with the longest prefix. It needs no token (rules 5.3).
  const orBareAddress = (route: ApiRoute): ApiRoute => ({
    ...route,
    access: 'address',
    handler: request => {
      const name = param(request, 'network')
      if (!looksLikeAddress(name)) return route.handler(request)
      const network = networkOf(model.view, toAddress(name))
      if (network === undefined) throw notFound(`${name} lies in no network`, 'no-address')
      return stateOf(model, network, name)
    }
  })
  /** Adds the way to renumber to the refusal of a prefix that leaves addresses outside. */
  const save = async (name: string, given: ObjectPatch, actor: Actor) => {
    const [before, to] = [model.view.get('network', name)?.network, given.values.get('network')]
    try {
      return await model.save('network', name, given, actor)
    } catch (error) {
      const isMove = before !== undefined && typeof to === 'string' && to !== before
      if (!isMove || !(error instanceof ServiceError) || error.status !== 400) throw error
      const way = `svcctl network renumber ${name} ${to}, or POST /config/network/${name}/_renumber`
      throw badRequest(
        `${error.message}; to move the network with all its addresses: ${way}`,
        'address-outside-network'
      )
    }
  }
  const objects = objectRoutes(parts, 'network', { updated: 200, cloned: 204, deleted: 201, save })
  const isSingle = ({ method, path }: ApiRoute) => method === 'GET' && path === '/config/network/{network}'
  return objects.map(route => (isSingle(route) ? orBareAddress(route) : route))
}

/** Networks and their addresses (rules 1.1, 3.6, 3.7). */
export function networkRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  return [
    ...networkObjectRoutes(parts),
    ...members('/config/network/{network}', 'minimal', {
      summary: 'The addresses in use in a network, with the device of each',
      query: listQuery,
      output: twice(place, { taken: list(inUseSchema) }),
      handler: request => {
        const name = param(request, 'network')
        const inUse = takenIn(model.view, name, model.cluster)
        const bare = request.caller.kind === 'anonymous'
        const taken = bare ? inUse.map(({ ipaddress }) => ({ ipaddress })) : inUse
        if (!isCustomized(request)) return okTwice('network', name, { taken })
        const listing = { title: 'address in use', place: `${place}.taken`, item: inUseSchema }
        return listed(
          request,
          listing,
          taken.map(entry => ({ name: entry.ipaddress, values: () => entry }))
        )
      }
    }),
    post('/config/network/{network}/_renumber', 'user', {
      summary: 'Change the prefix of a network; all addresses in it keep their host part',
      body: objectBody('network'),
      handler: async (request, given) => {
        const name = param(request, 'network')
        const { warnings = [] } = request
        const count = await renumber(model, name, given, actorOf(request), warnings)
        const moved = `${count} address${count === 1 ? '' : 'es'} of nodes and devices moved`
        return withWarnings(done(200, `network ${name} renumbered: ${moved}`), warnings)
      }
    }),
    get('/config/network/{network}/_nextfreeip', 'minimal', {
      summary: 'The first free address of a network; nothing is reserved',
      output: twice(place, { nextip: string('an IPv4 address') }),
      handler: request => {
        const name = param(request, 'network')
        const nextip = formatAddress(nextFree(model.view, name, model.cluster))
        return okTwice('network', name, { nextip })
      }
    }),
    get('/config/network/{network}/{ipaddress}', 'minimal', {
      summary: 'Whether an address of a network is free or taken',
      output: { ...at('config.network.{ipaddress}', addressState), additionalProperties: addressState },
      handler: request => stateOf(model, param(request, 'network'), param(request, 'ipaddress'))
    })
  ]
}
