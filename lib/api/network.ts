import type { Caller } from '../auth/access.js'
import { notFound } from '../errors.js'
import type { Answer } from '../http/route.js'
import { contains, formatAddress, toAddress } from '../model/address.js'
import { looksLikeAddress } from '../model/names.js'
import { isTaken, networkOf, nextFree, takenIn } from '../model/networks.js'
import { type ApiRoute, type Parts, param } from './context.js'
import { objectRoutes } from './objects.js'
import { shapes } from './shapes.js'

/** Networks and their addresses (rules 1.1, 3.6, 3.7). */
export function networkRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const inner = (name: string, key: string, value: unknown): Answer => ({
    status: 200,
    body: { config: { network: { [name]: { [key]: value } } }, [key]: value }
  })
  const status = (name: string, ipaddress: string): Answer => {
    const address = toAddress(ipaddress)
    const network = model.get('network', name)
    const prefix = model.view.index.networks.get(name)
    if (!prefix || !contains(prefix, address))
      throw notFound(`${ipaddress} lies outside network ${name} (${network.network})`)
    const state = { status: isTaken(model.view, address, model.cluster) ? 'taken' : 'free' }
    return { status: 200, body: { config: { network: { [ipaddress]: state } }, [ipaddress]: state } }
  }
  const reads = { method: 'GET', effect: 'reads', access: 'minimal', body: 'ignored' } as const
  const objects = objectRoutes(parts, {
    type: 'network',
    updated: 200,
    cloned: 204,
    deleted: 201,
    readable: 'user',
    members: false
  })
  const list = (name: string, caller: Caller) => {
    const taken = takenIn(model.view, name, model.cluster)
    return inner(
      name,
      'taken',
      caller.kind === 'anonymous' ? taken.map(({ ipaddress }) => ({ ipaddress })) : taken
    )
  }
  return [
    ...objects.map(route => (isSingle(route) ? withBareAddress(route, status, parts) : route)),
    ...['_list', '_member'].map(
      (suffix): ApiRoute => ({
        ...reads,
        path: `/config/network/{network}/${suffix}`,
        codes: [200, 404, 503],
        summary: 'The addresses in use in a network, with the device of each',
        output: shapes.taken,
        handler: request => list(param(request, 'network'), request.caller)
      })
    ),
    {
      ...reads,
      path: '/config/network/{network}/_nextfreeip',
      codes: [200, 404, 503],
      summary: 'The first address of a network that is free; nothing is reserved',
      output: shapes.nextip,
      handler: request => {
        const name = param(request, 'network')
        return inner(name, 'nextip', formatAddress(nextFree(model.view, name, model.cluster)))
      }
    },
    {
      ...reads,
      path: '/config/network/{network}/{ipaddress}',
      codes: [200, 404, 503],
      summary: 'Whether an address of a network is free or taken',
      output: shapes.addressState,
      handler: request => status(param(request, 'network'), param(request, 'ipaddress'))
    }
  ]
}

const isSingle = (route: ApiRoute) => route.method === 'GET' && route.path === '/config/network/{network}'

/**
 * `/config/network/{address}` answers for the network with the longest prefix that holds it. Unlike a
 * network, an address is told without a token (rules 5.3).
 */
function withBareAddress(
  route: ApiRoute,
  status: (name: string, ipaddress: string) => Answer,
  parts: Parts
): ApiRoute {
  return {
    ...route,
    access: 'address',
    handler: request => {
      const name = param(request, 'network')
      if (looksLikeAddress(name)) {
        const network = networkOf(parts.model.view, toAddress(name))
        if (network === undefined) throw notFound(`${name} lies in no network`)
        return status(network, name)
      }
      return route.handler(request)
    }
  }
}
