import { join } from 'node:path'
import { type Backend, readable } from '../backend.js'
import type { DnsData } from './variables.js'

const suffix = '.zone'
const zoneCheck = ['named-checkzone', '-k', 'ignore', '-i', 'local']

/** BIND's named has a list of zones, which its own configuration includes, and a file for each zone. */
export const bind: Backend<DnsData> = {
  name: 'bind',
  defaults: {
    config: '/etc/bind/svcd.conf',
    directory: '/var/lib/bind/svcd',
    check: ['named-checkconf'],
    service: 'named',
    leaseFile: ''
  },
  zoneCheck,
  reload: 'reload',
  render: ({ zones }, { config, directory }, render, serialOf) => {
    const file = (zone: string) => join(directory, `${zone}${suffix}`)
    const list = zones.map(({ name }) => ({ name, file: file(name) }))
    const main = render('dns/templ_bind.cfg', { zones: list })
    return {
      files: [
        { path: config, text: main, mode: readable, needs: 'reload' },
        ...zones.map(zone => {
          const path = file(zone.name)
          const body = (serial: number) => render('dns/templ_bind_zone.cfg', { ...zone, serial })
          return { path, text: serialOf(zone.name, path, body), mode: readable, needs: 'reload' } as const
        })
      ],
      owned: [{ directory, suffix }]
    }
  },
  checks: ({ config, directory, check }, changed, staged) => ({
    commands: changed.map(({ path }) =>
      path === config
        ? [...check, staged(path)]
        : // Names with _ are the admin's choice; what lies in other zones is not asked for over the network.
          [...zoneCheck, path.slice(directory.length + 1, -suffix.length), staged(path)]
    ),
    files: []
  })
}
