import { formatAddress, toAddress } from '../../model/address.js'
import { type Backend, readable } from '../backend.js'
import type { DhcpData, DhcpSubnet } from './data.js'

/** ISC dhcpd: one file; it cannot read that again, so a reload is a restart. */
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
    const text = render('dhcp/templ_isc.cfg', { ...data, subnets: data.subnets.map(bounded) })
    return { files: [{ path: config, text, mode: readable, needs: 'restart' }], owned: [] }
  },
  checks: ({ config, check }, _, staged) => ({ commands: [[...check, staged(config)]], files: [] })
}

/** dhcpd holds a record for each address of a range in memory from its start, and gives up with a /8. */
const mostLeases = 65_536

/** The subnet with as many of its dynamic addresses, the first ones, as dhcpd can hold. */
function bounded(subnet: DhcpSubnet): DhcpSubnet {
  let room = mostLeases
  const ranges = subnet.ranges.flatMap(({ first, last }) => {
    const size = Math.min(room, toAddress(last) - toAddress(first) + 1)
    room -= size
    return size === 0 ? [] : [{ first, last: formatAddress(toAddress(first) + size - 1) }]
  })
  return { ...subnet, ranges }
}
