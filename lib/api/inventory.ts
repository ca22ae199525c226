import { notFound } from '../base/errors.js'
import type { JsonObject } from '../base/json.js'
import {
  factsOf,
  type Inventory,
  inventoryShape,
  isList,
  readInventory,
  type Shape
} from '../inventory/facts.js'
import type { NodeInventory } from '../inventory/inventories.js'
import { differenceText } from '../inventory/odd.js'
import { type ApiRequest, type ApiRoute, actorOf, ok, type Parts, param, renewedToken } from './context.js'
import type { Listing } from './listing.js'
import { listedNodes, nodesQuery } from './node-sets.js'
import { type Body, get, openEnvelope, post } from './row.js'
import { at, list, object, type Schema, string, time } from './schema.js'

const plain = { text: 'string', number: 'integer', flag: 'boolean' } as const

const schemaOf = (shape: Shape): Schema => {
  if (typeof shape === 'string') return { type: plain[shape] }
  if (isList(shape)) return list(schemaOf(shape[0]))
  return object(Object.fromEntries(Object.entries(shape).map(([name, inner]) => [name, schemaOf(inner)])))
}

const place = 'monitor.inventory.{node}'
const reported = schemaOf(inventoryShape)
const shown = object({ since: time, ...(reported.properties as Schema) })

const report: Body<Inventory> = {
  schema: at(place, reported),
  read: request => readInventory(param(request, 'node'), openEnvelope(request, place))
}

/** Yields the columns of a report with their values: cpu.model, memory.total; a list is one column. */
function* columnsOf(shape: Shape, value: unknown, lead = ''): Generator<[name: string, value: unknown]> {
  if (typeof shape === 'string' || isList(shape)) return yield [lead, value]
  for (const [name, inner] of Object.entries(shape))
    yield* columnsOf(inner, (value as JsonObject | undefined)?.[name], lead === '' ? name : `${lead}.${name}`)
}

/** A row with its columns, and facts that sum them up, behind the fields of the JSON. */
function rowOf(name: string, { since, inventory }: NodeInventory): Readonly<Record<string, unknown>> {
  const { dimms, drives, nics, gpus, infiniband } = factsOf(inventory)
  const summed = { name, since, dimms, drives, nics, gpus, infiniband }
  const columns = { ...Object.fromEntries(columnsOf(inventoryShape, inventory)), ...summed }
  return Object.assign(Object.create(columns), { since, ...inventory })
}

const columns = Object.keys(Object.getPrototypeOf(rowOf('', { since: '', inventory: {} })))
const inventories: Listing = {
  title: 'inventory',
  place,
  // Columns that hold objects are shown on demand.
  item: object(
    Object.fromEntries(
      columns.map(name => [name, /^(?:disks|interfaces|pci|.*slots)$/.test(name) ? object({}) : string()])
    )
  ),
  columns: 'name system.product cpu.model cpu.sockets memory.total dimms drives gpus since'.split(' ')
}

const difference = {
  ...{ name: string('name of the node'), group: string(), fact: string('docs/inventory.md lists them') },
  ...{ value: string('of the node'), usual: string('of most nodes of its group') },
  nodes: string('how many of how many nodes have the usual'),
  difference: string('all of it in one line')
}
const odd: Listing = {
  ...{ title: 'difference', place: 'monitor.odd', item: object(difference), columns: ['name', 'difference'] }
}

/** The hardware of nodes, and which one is not like the others (rules 6.16, 6.17). */
export function inventoryRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  return [
    post('/monitor/inventory/{node}', 'node', {
      answers: [204],
      summary: 'Report what a node is made of',
      body: report,
      maxBody: 65_536,
      handler: (request, given) => takeReport(parts, request, given)
    }),
    get('/monitor/inventory', 'admin', {
      summary: 'What the nodes are made of, as they reported it',
      query: nodesQuery,
      output: at(place, shown),
      handler: request =>
        listedNodes(parts, request, inventories, name => {
          const snapshot = parts.inventories.snapshot(name)
          return snapshot ? [{ name, values: () => rowOf(name, snapshot()) }] : []
        })
    }),
    get('/monitor/inventory/{node}', 'admin', {
      summary: 'What a node is made of, as it reported it',
      output: at(place, shown),
      handler: request => {
        const { name } = model.get('node', param(request, 'node'))
        const snapshot = parts.inventories.snapshot(name)
        if (!snapshot)
          throw notFound(
            `node ${name} has reported no inventory: it does at its next installation`,
            'no-object'
          )
        const { since, inventory } = snapshot()
        return ok({ monitor: { inventory: { [name]: { since, ...inventory } } } })
      }
    }),
    get('/monitor/odd', 'user', {
      limited: 'filtered',
      summary: 'The nodes that are not like most of their group, a line for each difference',
      query: nodesQuery,
      output: at(odd.place, list(odd.item)),
      handler: async request => {
        await parts.odd.current()
        return listedNodes(parts, request, odd, name =>
          parts.odd.of(name).map(one => {
            const { group, fact, value, usual, count, of } = one
            const values = { name, group, fact, value, usual, nodes: `${count} of ${of}` }
            return { name, values: () => ({ ...values, difference: differenceText(one) }) }
          })
        )
      }
    })
  ]
}

/** Records a report; a node that runs gets a new token for the next one. */
async function takeReport(parts: Parts, request: ApiRequest, given: Inventory) {
  const { name } = parts.model.get('node', param(request, 'node'))
  const changes = await parts.inventories.report(name, given)
  const line = (text: string) => ({ type: 'inventory', name, before: {}, after: { hardware: text } })
  if (changes.length > 0) {
    parts.onHardware(name, changes)
    await parts.record(actorOf(request), changes.map(line), 'change')
  }
  return { status: 204, headers: renewedToken(parts, request.caller) }
}
