import { type Backend, readable } from '../backend.js'
import type { DhcpData, DhcpHost } from './data.js'

/** Kea's kea-dhcp4: one file of JSON, with the reservations of a subnet inside it. */
export const kea: Backend<DhcpData> = {
  name: 'kea',
  defaults: {
    config: '/etc/kea/kea-dhcp4.conf',
    directory: '',
    check: ['kea-dhcp4', '-t'],
    service: 'kea-dhcp4-server',
    leaseFile: '/var/lib/kea/kea-leases4.csv'
  },
  reload: 'reload',
  render: (data, { config, leaseFile, controlSocket }, render) => {
    const bySubnet = new Map<number, DhcpHost[]>(data.subnets.map(({ id }) => [id, []]))
    for (const host of data.hosts) bySubnet.get(host.subnet)?.push(host)
    const subnets = data.subnets.map(subnet => ({ ...subnet, hosts: bySubnet.get(subnet.id) ?? [] }))
    const all = { ...data, subnets, lease_file: leaseFile, control_socket: controlSocket }
    return {
      files: [{ path: config, text: render('dhcp/templ_kea.cfg', all), mode: readable, needs: 'reload' }],
      owned: []
    }
  },
  checks: ({ config, check }, _, staged) => ({ commands: [[...check, staged(config)]], files: [] })
}
