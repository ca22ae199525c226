import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { locate, requirePrograms } from '../support/programs.js'
import { controlScript } from './namespaces.js'

/** Where a DHCP server is run. */
interface Place {
  /** Holds all its files; what was asked of the server is in `asked`. */
  readonly directory: string
  /** Network namespace. */
  readonly namespace: string
  readonly device: string
}

type Made = { readonly control: string; readonly settings: readonly string[] }

/** What systemctl says to a reload of Debian's unit of kea. */
const noReload = '{ echo "Job type reload is not applicable for unit $2.service." >&2; exit 1; }'

const made: Record<string, (place: Place) => Made> = {
  isc: ({ directory, namespace, device }) => {
    // Debian's AppArmor profile lets /usr/sbin/dhcpd read /etc/dhcp alone; it does not bind a copy.
    const dhcpd = join(directory, 'dhcpd')
    copyFileSync(locate('dhcpd') ?? '', dhcpd)
    writeFileSync(join(directory, 'leases'), '')
    const files = `-cf ${directory}/dhcp.conf -lf ${directory}/leases -pf ${directory}/server.pid`
    const command = `${dhcpd} -f -d ${files} ${device}`
    return {
      control: controlScript(directory, { namespace, command, ready: 'starting service' }),
      settings: [`check=${dhcpd} -t -cf`]
    }
  },
  kea: ({ directory, namespace, device }) => {
    const variables = `KEA_PIDFILE_DIR=${directory} KEA_LOCKFILE_DIR=${directory}`
    const command = `env ${variables} kea-dhcp4 -c ${directory}/dhcp.conf`
    return {
      control: controlScript(directory, { namespace, command, ready: 'DHCP4_STARTED', reload: noReload }),
      settings: [
        `control_socket=${directory}/kea.sock`,
        `check=ip netns exec ${namespace} kea-dhcp4 -t`,
        `interfaces=${device}`
      ]
    }
  },
  dnsmasq: ({ directory, namespace, device }) => {
    const command = `dnsmasq -k --conf-file=${directory}/dhcp.conf --pid-file= --user=root --log-facility=-`
    return {
      control: controlScript(directory, { namespace, command, ready: 'started' }),
      settings: [`interfaces=${device}`]
    }
  }
}

/** The DHCP servers that svcd writes for and that answer. */
export const dhcpServers = Object.keys(made) as ('isc' | 'kea' | 'dnsmasq')[]

/** Ini settings for a real DHCP server in a namespace, which svcd starts, reloads and stops by a command. */
export function dhcpSettings(server: string, place: Place): string[] {
  requirePrograms('dhcpd', 'kea-dhcp4', 'dnsmasq', 'ip')
  const { directory } = place
  mkdirSync(join(directory, 'hosts'), { recursive: true })
  const { control, settings = [] } = made[server]?.(place) ?? {}
  return [
    ...[`server=${server}`, `config=${directory}/dhcp.conf`, `directory=${directory}/hosts`],
    ...[`control=${control}`, `lease_file=${directory}/leases`, 'gather=0s', ...settings]
  ].map(setting => `dhcp.${setting}`)
}
