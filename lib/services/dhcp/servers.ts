import { join } from 'node:path'
import { groupBy } from '../../base/lists.js'
import { contains, formatAddress, parseAddress, parsePrefix, toAddress } from '../../model/address.js'
import { type Backend, checksMain, type RenderedFile } from '../backend.js'
import { addressCount, wires } from './data.js'
import type { DhcpData, DhcpHost, DhcpSubnet, KeaSubnet, SharedNetwork } from './variables.js'

/** ISC dhcpd has one file, and cannot reread it: a reload is a restart. */
export const isc: Backend<DhcpData> = {
  name: 'isc',
  defaults: {
    config: '/etc/dhcp/dhcpd.conf',
    check: ['dhcpd', '-t', '-cf'],
    service: 'isc-dhcp-server',
    leaseFile: '/var/lib/dhcp/dhcpd.leases'
  },
  reload: 'restart',
  render: (data, { config }, render) => {
    const all = wires(data.subnets).map(subnets => ofServer(subnets).map(cutRanges))
    const text = render('dhcp/templ_isc.cfg', { ...data, wires: all })
    return { files: [{ path: config, text, needs: 'restart' }] }
  },
  checks: checksMain
}

/**
 * dhcpd lends a machine without an address any free one of the wire, from the first range on: the networks
 * around the controller's come first, and of these only the controller's keeps its range.
 */
function ofServer(wire: readonly DhcpSubnet[]): readonly DhcpSubnet[] {
  const here = wire.find(subnet => subnet.here && subnet.dhcp)
  const around = here && wire.findLast(subnet => subnet.dhcp && holds(subnet, here.network))
  if (!around) return wire
  const note =
    'No range: machines without an address of their own get one of ' +
    `${here.names}, where the controller is.`
  const near = wire.filter(subnet => holds(around, subnet.network))
  return [
    ...near.map(subnet =>
      subnet === here || subnet.ranges.length === 0
        ? subnet
        : { ...subnet, ranges: [], notes: [...subnet.notes, note] }
    ),
    ...wire.filter(subnet => !near.includes(subnet))
  ]
}

function holds({ cidr }: DhcpSubnet, text: string): boolean {
  const [prefix, address] = [parsePrefix(cidr), parseAddress(text)]
  return prefix !== undefined && address !== undefined && contains(prefix, address)
}

/** dhcpd keeps a record in memory for each address of a range from its start; with a /8 it gives up. */
const mostLeases = 65_536

/** Cuts a subnet's ranges to as many addresses as dhcpd can hold. */
function cutRanges(subnet: DhcpSubnet): DhcpSubnet {
  let room = mostLeases
  const ranges = subnet.ranges.map(({ first, last }) => ({ first: toAddress(first), last: toAddress(last) }))
  const all = addressCount(ranges)
  if (all <= room) return subnet
  const kept = ranges.flatMap(({ first, last }) => {
    const size = Math.min(room, last - first + 1)
    room -= size
    return size === 0 ? [] : [{ first: formatAddress(first), last: formatAddress(first + size - 1) }]
  })
  const note =
    `The range has ${all} addresses: those behind the first ${mostLeases} are left out, ` +
    'for dhcpd holds each in memory.'
  return { ...subnet, ranges: kept, notes: [...subnet.notes, note] }
}

/**
 * kea-dhcp4 has one JSON file, with each subnet's reservations in it, and rereads it on a command to its
 * control socket. Without an answer there Kea is restarted, as Debian's unit cannot reload.
 */
export const kea: Backend<DhcpData> = {
  name: 'kea',
  defaults: {
    config: '/etc/kea/kea-dhcp4.conf',
    check: ['kea-dhcp4', '-t'],
    service: 'kea-dhcp4-server',
    leaseFile: '/var/lib/kea/kea-leases4.csv',
    controlSocket: '/run/kea/kea4-ctrl-socket'
  },
  reload: 'restart',
  render: (data, { config, leaseFile, controlSocket }, render) => {
    const bySubnet = groupBy(data.hosts, ({ subnet }) => subnet)
    const ofSubnet = ({ id }: DhcpSubnet) => bySubnet.get(id) ?? []
    const shared: SharedNetwork[] = []
    const alone: KeaSubnet[] = []
    for (const wire of wires(data.subnets)) {
      const isAlone = wire.length === 1 || !wire.some(({ dhcp }) => dhcp)
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
    return { files: [{ path: config, text: render('dhcp/templ_kea.cfg', all), needs: 'restart' }] }
  },
  checks: checksMain
}

const hostSuffix = '.host'

/** dnsmasq has a main file, which needs a restart, and a file per machine, which it rereads on SIGHUP. */
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
    const { shared, relayed } = subnetsBeyond(data)
    // dnsmasq takes the first subnet that fits, and lends from the first range: shared ones come last.
    const subnets = data.subnets.map(subnet => (shared.includes(subnet) ? { ...subnet, ranges: [] } : subnet))
    const all = { ...data, subnets, shared, relayed, directory, lease_file: leaseFile }
    // The main file names machines with another script than the short menu, or with a loader of their own.
    const main = render('dhcp/templ_dnsmasq.cfg', all)
    const ofHost = (host: DhcpHost): RenderedFile => ({
      // Named by the MAC, which is unique and survives a rename.
      path: join(directory, `${host.mac.replaceAll(':', '')}${hostSuffix}`),
      text: render('dhcp/templ_dnsmasq_host.cfg', { host }),
      needs: 'reload'
    })
    return {
      files: [{ path: config, text: main, needs: 'restart' }, ...data.hosts.map(ofHost)],
      owned: [{ directory, suffix: hostSuffix }]
    }
  },
  checks: (settings, changed, staged) => {
    const { config, check } = settings
    // The checker does not read the machines' files: it gets their lines in the form of a main file.
    const lines = changed
      .filter(file => file.path !== config)
      .flatMap(({ text }) => text.split('\n'))
      .map(line => line.replace(/^(?=[^#\s])/, 'dhcp-host='))
    const { commands } = checksMain(settings, changed, staged)
    if (lines.length === 0) return { commands }
    const path = `${config}.hosts`
    return {
      commands: [...commands, [...check, staged(path)]],
      files: [{ path, text: lines.join('\n'), needs: 'reload' }]
    }
  }
}

/** Returns subnets of the controller's wire without its address, and what gateways of other wires relay. */
function subnetsBeyond({ subnets, controller }: DhcpData) {
  const shared: DhcpSubnet[] = []
  const relayed: { relay: string; network: string }[] = []
  for (const all of wires(subnets)) {
    const wire = all.filter(({ dhcp }) => dhcp)
    if (all.some(({ here }) => here)) shared.push(...wire.filter(subnet => !holds(subnet, controller)))
    else
      for (const { router: relay } of all)
        if (relay !== '')
          for (const other of wire) if (!holds(other, relay)) relayed.push({ relay, network: other.network })
  }
  return { shared, relayed }
}
