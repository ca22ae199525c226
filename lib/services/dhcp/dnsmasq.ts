import { join } from 'node:path'
import { contains, parseAddress, parsePrefix } from '../../model/address.js'
import { type Backend, type RenderedFile, readable } from '../backend.js'
import { wires } from './overlap.js'
import type { DhcpData, DhcpSubnet } from './variables.js'

const suffix = '.host'

/**
 * dnsmasq has a main file, for which it is restarted, and a file for each machine, which it reads again on SIGHUP.
 * Machines that get another script than the short menu are named in the main file.
 */
export const dnsmasq: Backend<DhcpData> = {
  name: 'dnsmasq',
  defaults: {
    config: '/etc/dnsmasq.d/svcd-dhcp.conf',
    directory: '/var/lib/misc/svcd-dhcp',
    check: ['dnsmasq', '--test', '-C'],
    service: 'dnsmasq',
    leaseFile: '/var/lib/misc/dnsmasq.leases'
  },
  reload: 'reload',
  render: (data, { config, directory, leaseFile }, render) => {
    const shared = beyond(data)
    // dnsmasq takes the first subnet that an address fits, and lends from the first range. So these come last.
    const subnets = data.subnets.map(subnet => (shared.includes(subnet) ? { ...subnet, ranges: [] } : subnet))
    const all = { ...data, subnets, shared, directory, lease_file: leaseFile }
    const main = render('dhcp/templ_dnsmasq.cfg', all)
    const ofHost = (host: DhcpData['hosts'][number]): RenderedFile => ({
      // Named by the MAC, which is one machine's alone, whatever the machine is called.
      path: join(directory, `${host.mac.replaceAll(':', '')}${suffix}`),
      text: render('dhcp/templ_dnsmasq_host.cfg', { host }),
      mode: readable,
      needs: 'reload'
    })
    return {
      files: [{ path: config, text: main, mode: readable, needs: 'restart' }, ...data.hosts.map(ofHost)],
      owned: [{ directory, suffix }]
    }
  },
  checks: ({ config, check }, changed, staged) => {
    // The checker does not read the machines' files, so it is shown their lines in the form of a main file.
    const lines = changed
      .filter(file => file.path !== config)
      .flatMap(({ text }) => text.split('\n'))
      .map(line => line.replace(/^(?=[^#\s])/, 'dhcp-host='))
    const path = `${config}.hosts`
    return {
      commands: [
        ...(changed.some(file => file.path === config) ? [[...check, staged(config)]] : []),
        ...(lines.length > 0 ? [[...check, staged(path)]] : [])
      ],
      files: lines.length > 0 ? [{ path, text: lines.join('\n'), mode: readable, needs: 'reload' }] : []
    }
  }
}

/** The subnets on the controller's wire that do not hold its address: dnsmasq has to be told of them. */
function beyond({ subnets, controller }: DhcpData): DhcpSubnet[] {
  const address = parseAddress(controller)
  const holds = ({ cidr }: DhcpSubnet) => {
    const prefix = parsePrefix(cidr)
    return prefix !== undefined && address !== undefined && contains(prefix, address)
  }
  return wires(subnets)
    .filter(wire => wire.some(({ here }) => here))
    .flatMap(wire => wire.filter(subnet => !holds(subnet)))
}
