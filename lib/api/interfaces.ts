import { notFound } from '../errors.js'
import { array } from '../model/field.js'
import { see, showInterfaces } from '../model/output.js'
import { readInterfaces } from '../model/request.js'
import { objectTypes } from '../model/types.js'
import { bodyOf } from './body.js'
import { type ApiRequest, type ApiRoute, actorOf, done, okTwice, type Parts, param } from './context.js'
import { isChosen, type Listing, listed, listQuery } from './listing.js'
import { deletion, get, post } from './row.js'
import { list, ref, twice } from './schema.js'

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
  const shown = (name: string) => {
    const doc = model.get(type, name)
    return showInterfaces(table, doc, see(type, doc, model.view, () => null).group)
  }
  return [
    get(base, {
      access: 'user',
      summary: `The interfaces of a ${type}`,
      query: listQuery,
      output,
      handler: request => {
        const interfaces = shown(nameOf(request))
        if (!isChosen(request)) return okTwice(type, nameOf(request), { interfaces })
        return listed(
          request,
          listing,
          interfaces.map(values => ({ name: String(values.interface), values: () => values }))
        )
      }
    }),
    get(`${base}/{interface}`, {
      access: 'user',
      summary: `One interface of a ${type}`,
      output,
      handler: request => {
        const [name, wanted] = [nameOf(request), param(request, 'interface')]
        const found = shown(name).find(entry => entry.interface === wanted)
        if (!found) throw notFound(`${type} ${name} has no interface ${wanted}`)
        return okTwice(type, name, { interfaces: [found] })
      }
    }),
    post(base, {
      access: 'user',
      answers: type === 'group' ? [201, 204] : [204],
      summary: `Add or change interfaces of a ${type}`,
      body,
      handler: async (request, given) => {
        const name = nameOf(request)
        const added = await model.saveInterfaces(type, name, given, actorOf(request))
        return done(type === 'group' && added ? 201 : 204, `interfaces of group ${name} created`)
      }
    }),
    ...deletion(`${base}/{interface}`, {
      access: 'user',
      answers: [204],
      summary: `Delete one interface of a ${type}`,
      handler: async request => {
        const [name, wanted] = [nameOf(request), param(request, 'interface')]
        await model.removeInterface(type, name, wanted, actorOf(request))
        return { status: 204 }
      }
    })
  ]
}
