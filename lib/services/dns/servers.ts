import { join } from 'node:path'
import { type Backend, checksMain } from '../backend.js'
import type { DnsData } from './variables.js'

const zoneSuffix = '.zone'
const zoneCheck = ['named-checkzone', '-k', 'ignore', '-i', 'local']

/** BIND's named has a list of zones, which its own configuration includes, and a file for each zone. */
export const bind: Backend<DnsData> = {
  name: 'bind',
  defaults: {
    config: '/etc/bind/svcd.conf',
    directory: '/var/lib/bind/svcd',
    check: ['named-checkconf'],
    service: 'named'
  },
  zoneCheck,
  reload: 'reload',
  render: ({ zones }, { config, directory }, render, serialOf) => {
    const file = (zone: string) => join(directory, `${zone}${zoneSuffix}`)
    const list = zones.map(({ name }) => ({ name, file: file(name) }))
    const main = render('dns/templ_bind.cfg', { zones: list })
    return {
      files: [
        { path: config, text: main, needs: 'reload' },
        ...zones.map(zone => {
          const path = file(zone.name)
          const body = (serial: number) => render('dns/templ_bind_zone.cfg', { ...zone, serial })
          return { path, text: serialOf(zone.name, path, body), needs: 'reload' } as const
        })
      ],
      owned: [{ directory, suffix: zoneSuffix }]
    }
  },
  checks: ({ config, directory, check }, changed, staged) => ({
    commands: changed.map(({ path }) =>
      path === config
        ? [...check, staged(path)]
        : // Names with _ are the admin's choice, and names of other zones are not looked up over the network.
          [...zoneCheck, path.slice(directory.length + 1, -zoneSuffix.length), staged(path)]
    )
  })
}

const hostsSuffix = '.hosts'

/** dnsmasq has a main file, which needs a restart, and a hosts file, which it rereads on SIGHUP. */
export const dnsmasq: Backend<DnsData> = {
  name: 'dnsmasq',
  defaults: {
    config: '/etc/dnsmasq.d/svcd-dns.conf',
    directory: '/var/lib/misc/svcd-dns',
    check: ['dnsmasq', '--test', '-C'],
    service: 'dnsmasq'
  },
  reload: 'reload',
  render: ({ zones, hosts, notes }, { config, directory }, render) => {
    const file = join(directory, `cluster${hostsSuffix}`)
    // Names that are not in the file are forwarded, unless they lie in one of these.
    const whole = zones.flatMap(({ name, single }) => (single ? [] : [name]))
    const main = render('dns/templ_dnsmasq.cfg', { zones: whole, hosts_file: file })
    return {
      files: [
        { path: config, text: main, needs: 'restart' },
        { path: file, text: render('dns/templ_dnsmasq_hosts.cfg', { hosts, notes }), needs: 'reload' }
      ],
      owned: [{ directory, suffix: hostsSuffix }]
    }
  },
  checks: checksMain
}
