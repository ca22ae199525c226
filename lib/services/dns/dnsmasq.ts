import { join } from 'node:path'
import { type Backend, readable } from '../backend.js'
import type { DnsData } from './variables.js'

const suffix = '.hosts'

/** dnsmasq has a main file, for which it is restarted, and a hosts file, which it reads again on SIGHUP. */
export const dnsmasq: Backend<DnsData> = {
  name: 'dnsmasq',
  defaults: {
    config: '/etc/dnsmasq.d/svcd-dns.conf',
    directory: '/var/lib/misc/svcd-dns',
    check: ['dnsmasq', '--test', '-C'],
    service: 'dnsmasq',
    leaseFile: ''
  },
  reload: 'reload',
  render: ({ zones, hosts }, { config, directory }, render) => {
    const file = join(directory, `cluster${suffix}`)
    const main = render('dns/templ_dnsmasq.cfg', { zones: zones.map(({ name }) => name), hosts_file: file })
    return {
      files: [
        { path: config, text: main, mode: readable, needs: 'restart' },
        {
          path: file,
          text: render('dns/templ_dnsmasq_hosts.cfg', { hosts }),
          mode: readable,
          needs: 'reload'
        }
      ],
      owned: [{ directory, suffix }]
    }
  },
  checks: ({ config, check }, changed, staged) => ({
    commands: changed.some(({ path }) => path === config) ? [[...check, staged(config)]] : [],
    files: []
  })
}
