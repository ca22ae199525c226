import t from 'tap'
import type { JsonValue } from '../../lib/base/json.js'
import { AddressSet, parsePrefix } from '../../lib/model/address.js'
import {
  applyGroupInterfaces,
  assignAddresses,
  mergeGroupInterfaces,
  mergeNodeInterfaces
} from '../../lib/model/networks.js'
import type { Tx } from '../../lib/model/stored.js'
import { nodeInterfaces } from '../../lib/model/types/interface.js'
import { admin, settings } from '../support/memory-cluster.js'

/** Entries that count how often their names are read. */
function counted(many: number, fields: object = {}) {
  const counter = { reads: 0 }
  const entries = Array.from({ length: many }, (_, i) => ({
    get interface() {
      counter.reads++
      return `eth${i}`
    },
    ...fields
  }))
  return { counter, entries }
}

const many = 1_000
/** Each name is read a few times: a look through all entries for each would be a thousand times. */
const few = 20 * many

const network = { name: 'net', network: '10.0.0.0/8' }

/** A transaction that sees one network, and counts how often its free addresses are looked up. */
function cluster() {
  const taken = new AddressSet()
  const counter = { lookups: 0 }
  const tx = {
    get: (type: string) => (type === 'network' ? network : undefined),
    index: {
      networks: new Map([['net', parsePrefix(network.network)]]),
      addressOwners: () => [],
      gatewayOf: () => undefined,
      usedAddresses: {
        firstFree(first: number, last: number) {
          counter.lookups++
          return taken.firstFree(first, last)
        }
      }
    }
  } as unknown as Tx
  return { tx, counter }
}

const node = { name: 'node001' }
const changing = (tx: Tx) => ({ tx, callerRights: admin })

t.test('the work on the interfaces of a node or a group grows with their number alone', async t => {
  const { tx } = cluster()
  // The last one first: so a look for each from the beginning would pass all that are left.
  const plain = Array.from({ length: many }, (_, i) => ({
    interface: `eth${many - 1 - i}`,
    network: 'net',
    force: false
  }))
  t.test('given for a node that has them', async t => {
    const { counter, entries } = counted(many, { network: 'net' })
    t.equal(
      mergeNodeInterfaces(changing(tx), { ...node, interfaces: entries }, plain).interfaces?.length,
      many
    )
    t.ok(counter.reads < few, `${counter.reads} reads`)
  })
  t.test('given for a group that has them', async t => {
    const { counter, entries } = counted(many, { network: 'net' })
    t.equal(mergeGroupInterfaces({ name: 'g', interfaces: entries }, plain).interfaces?.length, many)
    t.ok(counter.reads < few, `${counter.reads} reads`)
  })
  t.test('of a node that enters a group with them', async t => {
    const { counter, entries } = counted(many, { network: 'net' })
    const group = { name: 'g', interfaces: plain }
    t.equal(applyGroupInterfaces({ ...node, interfaces: entries }, undefined, group).interfaces?.length, many)
    t.ok(counter.reads < few, `${counter.reads} reads`)
  })
  t.test('of an import or a file', async t => {
    const { counter, entries } = counted(many)
    t.equal(nodeInterfaces.type.read(entries as unknown as JsonValue).length, many)
    t.ok(counter.reads < few, `${counter.reads} reads`)
  })
})

t.test('each address that is assigned costs one look for a free one', async t => {
  const { tx, counter } = cluster()
  const given = Array.from({ length: many }, (_, i) => ({
    interface: `eth${i}`,
    network: 'net',
    force: false
  }))
  const assigned =
    assignAddresses(tx, mergeNodeInterfaces(changing(tx), node, given), settings).interfaces ?? []
  t.equal(assigned[0]?.ipaddress, '10.0.0.1')
  t.equal(new Set(assigned.map(({ ipaddress }) => ipaddress)).size, many)
  t.ok(counter.lookups < 2 * many, `${counter.lookups} look-ups`)
})
