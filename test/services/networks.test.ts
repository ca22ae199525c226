import fc from 'fast-check'
import t from 'tap'
import { contains, formatAddress, mask, type Prefix, parsePrefix } from '../../lib/model/address.js'
import type { NetworkDoc } from '../../lib/model/types/network.js'
import { capture } from '../../lib/services/capture.js'
import { dhcpData, subnetGroups, wires } from '../../lib/services/dhcp/data.js'
import type { DhcpData } from '../../lib/services/dhcp/variables.js'
import { settings, view } from './cluster.js'
import { dataOf, options } from './rendered.js'

/** Prefixes that often lie in one another, at any length. */
const cidr = fc
  .tuple(
    fc.constantFrom(0x0a8d0000, 0x0a8d4000, 0x0a8dff00, 0x0b000000),
    fc.nat(0xffff),
    fc.integer({ min: 1, max: 32 })
  )
  .map(([first, more, length]) => `${formatAddress(((first + more) & mask(length)) >>> 0)}/${length}`)
const cidrs = fc.uniqueArray(cidr, { maxLength: 30 })
const docs = (list: readonly string[]) =>
  list.map((network, i) => ({ name: `n${i}`, network, dhcp: i % 4 !== 3 }) as NetworkDoc)
const prefixOf = (text: string) => parsePrefix(text) as Prefix
const inside = (inner: Prefix, outer: Prefix) => inner.length > outer.length && contains(outer, inner.first)

t.test('a subnet keeps its number, and has a lower one than those around it', async t => {
  fc.assert(
    fc.property(cidrs, list => {
      const groups = subnetGroups(docs(list), undefined)
      const ids = groups.map(({ id }) => id)
      if (new Set(ids).size !== list.length || ids.some(id => id < 1 || id > 2 ** 32 - 2)) return false
      const alone = groups.every(group => subnetGroups(docs([group.cidr]), undefined)[0]?.id === group.id)
      return alone && groups.every(a => groups.every(b => !inside(a.prefix, b.prefix) || a.id < b.id))
    })
  )
  for (const text of ['0.0.0.0/0', '0.0.0.0/1', '255.255.255.254/31', '255.255.255.255/32', '0.0.0.0/32']) {
    const [group] = subnetGroups(docs([text]), undefined)
    t.ok(group && group.id >= 1 && group.id <= 2 ** 32 - 2, `${text} has ${group?.id}`)
  }
})

t.test('a subnet knows which ones lie in it', async () => {
  const covers = (outer: Prefix, inner: Prefix) => outer.first === inner.first || inside(inner, outer)
  fc.assert(
    fc.property(cidrs, list => {
      const groups = subnetGroups(docs(list), undefined)
      return groups.every(({ prefix, inside: within }) => {
        const inner = groups.map(group => group.prefix).filter(other => inside(other, prefix))
        return (
          within.every((one, i) => inner.includes(one) && (within[i - 1]?.last ?? -1) < one.first) &&
          inner.every(one => within.some(other => covers(other, one)))
        )
      })
    })
  )
})

t.test('subnets lie on one wire where they serve DHCP and overlap, those inside first', async () => {
  await fc.assert(
    fc.asyncProperty(cidrs, async list => {
      const objects = { network: Object.fromEntries(docs(list).map(({ name, ...doc }) => [name, doc])) }
      const { subnets } = (await dataOf('dhcp', objects)) as DhcpData
      const all = wires(subnets)
      const wireOf = new Map(all.flatMap((wire, i) => wire.map(subnet => [subnet, i])))
      const rightPairs = subnets.every(a =>
        subnets.every(b => {
          if (!inside(prefixOf(a.cidr), prefixOf(b.cidr))) return true
          const [x, y] = [wireOf.get(a) ?? -1, wireOf.get(b) ?? -1]
          if (!a.dhcp || !b.dhcp) return x !== y
          return x === y && (all[x] ?? []).indexOf(a) < (all[x] ?? []).indexOf(b)
        })
      )
      const connected = all.every(wire => {
        const outer = wire.at(-1)
        return wire.every(a => a === outer || (outer && inside(prefixOf(a.cidr), prefixOf(outer.cidr))))
      })
      return rightPairs && connected && wireOf.size === list.length && all.flat().length === list.length
    })
  )
})

t.test('the event loop has its turn after each subnet', async t => {
  const network = Object.fromEntries(
    Array.from({ length: 300 }, (_, n) => [`n${n}`, { network: `10.${n >> 8}.${n & 255}.0/24`, dhcp: true }])
  )
  const steps = [...dhcpData(capture(view({ network }), settings), options)]
  t.ok(steps.length >= 300, `${steps.length} turns`)
})

// rules 10.7
t.test('an NTP server is named as in DNS, or it is said that it is left out', async t => {
  const names =
    'Controller.cluster, node1.hpc.example.com node1.cluster sw1 ns1.cluster 10.1.2.3 pool.ntp.org'
  const objects = {
    network: {
      cluster: {
        network: '10.141.0.0/16',
        dhcp: true,
        ntp_server: names,
        ns_hostname: 'ns1',
        ns_ip: '10.141.0.9'
      }
    },
    node: {
      node1: {
        domain: 'hpc.example.com',
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' }]
      }
    },
    switch: { sw1: { network: 'cluster', ipaddress: '10.141.0.2' } }
  }
  const { subnets } = (await dataOf('dhcp', objects)) as DhcpData
  t.same(subnets[0]?.ntp_servers, [
    ...['10.141.255.254', '10.141.0.1', '10.141.0.2', '10.141.0.9', '10.1.2.3']
  ])
  t.match(subnets[0]?.notes, [/^NTP server pool\.ntp\.org is left out/])
})
