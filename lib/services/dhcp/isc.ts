import { formatAddress, toAddress } from '../../model/address.js'
import { type Backend, readable } from '../backend.js'
import { wires } from './overlap.js'
import { sizeOf } from './ranges.js'
import type { DhcpData, DhcpSubnet } from './variables.js'

/** ISC dhcpd has one file. It cannot read that again, so a reload is a restart. */
export const isc: Backend<DhcpData> = {
  name: 'isc',
  defaults: {
    config: '/etc/dhcp/dhcpd.conf',
    directory: '',
    check: ['dhcpd', '-t', '-cf'],
    service: 'isc-dhcp-server',
    leaseFile: '/var/lib/dhcp/dhcpd.leases'
  },
  reload: 'restart',
  render: (data, { config }, render) => {
    const all = wires(data.subnets).map(subnets => ofServer(subnets).map(bounded))
    const text = render('dhcp/templ_isc.cfg', { ...data, wires: all })
    return { files: [{ path: config, text, mode: readable, needs: 'restart' }], owned: [] }
  },
  checks: ({ config, check }, _, staged) => ({ commands: [[...check, staged(config)]], files: [] })
}

/**
 * dhcpd lends a machine without an address any free address of the wire. So on a wire that holds the controller, only
 * the network with the controller keeps its range.
 */
function ofServer(wire: readonly DhcpSubnet[]): readonly DhcpSubnet[] {
  const here = wire.find(subnet => subnet.here)
  if (!here) return wire
  const note = `No range: machines without an address of their own get one of ${here.names}, where the controller is.`
  const others = (subnet: DhcpSubnet) =>
    subnet.ranges.length > 0 ? { ...subnet, ranges: [], notes: [...subnet.notes, note] } : subnet
  return wire.map(subnet => (subnet === here ? subnet : others(subnet)))
}

/** dhcpd holds a record for each address of a range in memory from its start, and gives up with a /8. */
const mostLeases = 65_536

/** The subnet with its first dynamic addresses, as many as dhcpd can hold. */
function bounded(subnet: DhcpSubnet): DhcpSubnet {
  let room = mostLeases
  const ranges = subnet.ranges.map(({ first, last }) => ({ first: toAddress(first), last: toAddress(last) }))
  const all = sizeOf(ranges)
  if (all <= room) return subnet
  const kept = ranges.flatMap(({ first, last }) => {
    const size = Math.min(room, last - first + 1)
    room -= size
    return size === 0 ? [] : [{ first: formatAddress(first), last: formatAddress(first + size - 1) }]
  })
  const note = `The range has ${all} addresses: those behind the first ${mostLeases} are left out, for dhcpd holds each in memory.`
  return { ...subnet, ranges: kept, notes: [...subnet.notes, note] }
}
