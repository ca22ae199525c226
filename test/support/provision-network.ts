import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Child, startChild } from './child.js'
import { addNamespace, removeNamespace } from './namespaces.js'
import { locate, output, requirePrograms } from './programs.js'

/** A machine's place: its tap and, when known, its DHCP host entry (rules 10.5). */
export interface DhcpHost {
  readonly mac: string
  /** Absent: the DHCP server does not know the machine and lends it an address. */
  readonly ipaddress?: string
  /** Boot file URL; the network's own (`/boot`) when absent. */
  readonly bootfile?: string
}

/** A provisioning network of its own: a bridge with the controller's address and a tap per machine. */
export interface ProvisionNetwork {
  /** Its network namespace. */
  readonly namespace: string
  /** Put before a command, it runs in the network and dies with this process, even on kill -9. */
  readonly enter: readonly string[]
  /** The tap of the machine with this MAC. */
  tap(mac: string): string
  /** Ends every process in the network, then removes it. */
  close(): Promise<void>
}

const dhcpdConf = (hosts: readonly DhcpHost[]) => `authoritative;
ddns-update-style none;
default-lease-time 600;
option space ipxe;
option ipxe-encap code 175 = encapsulate ipxe;
# iPXE need not wait for a proxy DHCP server: there is none.
option ipxe.no-pxedhcp code 176 = unsigned integer 8;
subnet 10.141.0.0 netmask 255.255.255.0 {
  range 10.141.0.200 10.141.0.220;
  option routers 10.141.0.1;
  # Shim asks for GRUB there; firmware makes do with the server's address.
  next-server 10.141.0.1;
  option ipxe.no-pxedhcp 1;
  if exists user-class and option user-class = "iPXE" { filename "http://10.141.0.1:7050/boot"; }
}
${hosts.map(hostEntry).join('')}`

const hostEntry = ({ mac, ipaddress, bootfile }: DhcpHost, i: number) =>
  ipaddress
    ? `host h${i} { hardware ethernet ${mac}; fixed-address ${ipaddress};` +
      `${bootfile ? ` filename "${bootfile}";` : ''} }\n`
    : ''

/** ISC's DHCP server on a device of the namespace that `enter` leads into; its files lie in `directory`. */
export async function startDhcpd(options: {
  readonly enter: readonly string[]
  readonly directory: string
  readonly configuration: string
  readonly device: string
}): Promise<Child> {
  const { enter, directory, configuration, device } = options
  const file = (leaf: string) => join(directory, leaf)
  await writeFile(file('dhcpd.conf'), configuration)
  await writeFile(file('dhcpd.leases'), '')
  // Debian's AppArmor profile lets /usr/sbin/dhcpd read /etc/dhcp alone; it does not bind a copy.
  await copyFile(locate('dhcpd') ?? '', file('dhcpd'))
  const files = ['-cf', file('dhcpd.conf'), '-lf', file('dhcpd.leases'), '-pf', file('dhcpd.pid')]
  return startChild([...enter, file('dhcpd'), '-f', '-d', ...files, device], log =>
    log.includes('starting service')
  )
}

/** A provisioning network to make. */
export interface NetworkOptions {
  /** Whoever starts the network brings the DHCP server. */
  readonly withoutDhcp?: boolean
  /** Directory that a TFTP server on the controller's address hands out. */
  readonly tftp?: string
}

/**
 * Makes the network 10.141.0.0/24 with the controller's address 10.141.0.1, a DHCP server that sends iPXE to
 * `http://10.141.0.1:7050/boot` (range .200 to .220 for unknown machines) and router advertisements, without
 * which iPXE waits 16 s for IPv6. Everything is in a network namespace named after this process: any number
 * of runs go on beside each other.
 * @throws Error when a program is missing or the process is not root.
 */
export async function startNetwork(
  hosts: readonly DhcpHost[],
  { withoutDhcp = false, tftp }: NetworkOptions = {}
): Promise<ProvisionNetwork> {
  requirePrograms('setpriv', 'dhcpd', 'dnsmasq')
  const name = await addNamespace('machines')
  const directory = await mkdtemp(join(tmpdir(), 'svcd-network-'))
  const enter = ['ip', 'netns', 'exec', name, 'setpriv', '--pdeathsig', 'KILL']
  const services: Child[] = []
  const close = async () => {
    await Promise.all(services.map(service => service.stop()))
    await removeNamespace(name)
    await rm(directory, { recursive: true })
  }
  const ip = (...args: string[]) => output('ip', ['-n', name, ...args])
  try {
    await ip('link', 'add', 'br0', 'type', 'bridge', 'forward_delay', '0')
    await ip('address', 'add', '10.141.0.1/24', 'dev', 'br0')
    await ip('address', 'add', 'fd00:141::1/64', 'dev', 'br0', 'nodad')
    await ip('link', 'set', 'br0', 'up')
    for (const tap of hosts.map((_, i) => `tap${i}`)) {
      await ip('tuntap', 'add', tap, 'mode', 'tap')
      await ip('link', 'set', tap, 'master', 'br0', 'up')
    }
    const file = (leaf: string) => join(directory, leaf)
    if (!withoutDhcp)
      services.push(await startDhcpd({ enter, directory, configuration: dhcpdConf(hosts), device: 'br0' }))
    services.push(
      await startChild(
        [
          ...enter,
          'dnsmasq',
          '--keep-in-foreground',
          '--conf-file=/dev/null',
          '--port=0',
          '--enable-ra'
        ].concat(
          ['--dhcp-range=fd00:141::,ra-only', '--interface=br0', '--bind-interfaces', '--user=root'],
          ['--log-facility=-', '--pid-file=', `--dhcp-leasefile=${file('dnsmasq.leases')}`],
          tftp ? ['--enable-tftp', `--tftp-root=${tftp}`] : []
        ),
        log => log.includes('started')
      )
    )
  } catch (error) {
    await close()
    throw error
  }
  return { namespace: name, enter, tap: mac => `tap${hosts.findIndex(host => host.mac === mac)}`, close }
}
