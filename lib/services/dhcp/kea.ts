import { type Backend, readable } from '../backend.js'
import { wires } from './overlap.js'
import type { DhcpData, DhcpHost, DhcpSubnet, KeaSubnet, SharedNetwork } from './variables.js'

/**
 * Kea's kea-dhcp4 has one JSON file, with the reservations of a subnet inside that subnet. It reads the file again
 * when told so on its control socket, which the file opens. Debian's unit cannot reload, so Kea is restarted when
 * nobody answers on the socket.
 */
export const kea: Backend<DhcpData> = {
  name: 'kea',
  defaults: {
    config: '/etc/kea/kea-dhcp4.conf',
    directory: '',
    check: ['kea-dhcp4', '-t'],
    service: 'kea-dhcp4-server',
    leaseFile: '/var/lib/kea/kea-leases4.csv',
    controlSocket: '/run/kea/kea4-ctrl-socket'
  },
  reload: 'restart',
  render: (data, { config, leaseFile, controlSocket }, render) => {
    const bySubnet = new Map<number, DhcpHost[]>(data.subnets.map(({ id }) => [id, []]))
    for (const host of data.hosts) bySubnet.get(host.subnet)?.push(host)
    const ofSubnet = ({ id }: DhcpSubnet) => bySubnet.get(id) ?? []
    const shared: SharedNetwork[] = []
    const alone: KeaSubnet[] = []
    for (const wire of wires(data.subnets)) {
      const isAlone = wire.length === 1
      // A machine without an address may get one from any subnet of the wire.
      const roaming = wire.flatMap(ofSubnet).filter(({ ipaddress }) => ipaddress === '')
      const subnets = wire.map(subnet => ({
        ...subnet,
        own_class: isAlone ? '' : `svcd-subnet-${subnet.id}`,
        hosts: [...ofSubnet(subnet), ...roaming.filter(host => host.subnet !== subnet.id)]
      }))
      if (isAlone) alone.push(...subnets)
      else shared.push({ name: `svcd-${wire.at(-1)?.id}`, subnets })
    }
    const all = { ...data, alone, shared, lease_file: leaseFile, control_socket: controlSocket }
    return {
      files: [{ path: config, text: render('dhcp/templ_kea.cfg', all), mode: readable, needs: 'restart' }],
      owned: []
    }
  },
  checks: ({ config, check }, _, staged) => ({ commands: [[...check, staged(config)]], files: [] })
}
