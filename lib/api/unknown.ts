import { runFairly } from '../base/concurrency.js'
import { objectName } from '../model/field.js'
import { seenMachines, unknownIn } from '../unknown/list.js'
import { type ApiRoute, actorOf, type Parts } from './context.js'
import { acknowledge, acknowledgement } from './jobs.js'
import { type Listing, listed, listQuery } from './listing.js'
import { withWarnings } from './objects.js'
import { bodyOf, get, post } from './row.js'
import { at, list, object, orNull, string, time } from './schema.js'

const text = orNull(string())
const machine = object({
  mac: { ...text, description: 'the MAC that it asked with' },
  macs: list(string()),
  ...{ maker: text, product: text, serial: text, uuid: text, asset: text },
  address: { ...text, description: 'source of its last request' },
  network: { ...text, description: 'the network with that address' },
  switch: { ...text, description: 'where [boot] snmp_detection sees it' },
  port: text,
  bmc: { ...text, description: 'address of its BMC, from a scan' },
  bmc_mac: text,
  ...{ first: orNull(time), last: orNull(time), count: { type: 'integer' } },
  node: { ...text, description: 'the node with its serial number or UUID, which has no machine' },
  conflict: { ...text, description: 'why it may not be what it says' }
})
const listing: Listing = {
  title: 'machine',
  place: 'monitor.unknown.{mac}',
  item: machine,
  columns: ['mac', 'maker', 'product', 'serial', 'address', 'port', 'bmc', 'count', 'last', 'conflict']
}

const scanBody = bodyOf(
  { about: 'scan' },
  {
    network: { type: objectName, required: true, meaning: 'network of the BMCs' },
    bmcsetupname: { type: objectName, required: true, meaning: 'BMC set-up with their user' }
  }
)

/** Machines that belong to no node (rules 4.37, 13.5). */
export function unknownRoutes({ model, unknown, scan }: Parts): ApiRoute[] {
  return [
    get('/monitor/unknown', 'user', {
      summary: 'The machines that asked for a boot script and belong to no node: what they say of themselves',
      query: listQuery,
      output: at(listing.place, machine),
      handler: async request => {
        const { machines, missing, ports } = await seenMachines(unknown, request)
        const found = await runFairly(unknownIn(model.view, machines, ports), request)
        const entries = found.map(one => ({
          name: one.count > 0 ? String(one.mac) : String(one.bmc),
          values: () => ({ ...one })
        }))
        const warnings = missing.map(
          ({ controller, reason }) => `what controller ${controller} saw is missing: ${reason}`
        )
        return withWarnings(listed(request, listing, entries), warnings)
      }
    }),
    post('/monitor/unknown/_scan', 'admin', {
      refuses: [404],
      summary: 'Ask the BMCs of a network for their machines, by Redfish; an asynchronous request',
      body: scanBody,
      output: acknowledgement,
      handler: async (request, { network, bmcsetupname }) =>
        acknowledge(request, await scan.submit(network, bmcsetupname, actorOf(request)))
    })
  ]
}
