import t, { type Test } from 'tap'
import { requirePrograms } from '../support/programs.js'
import { mac, type Objects } from './cluster.js'
import { dhcpServers } from './dhcp-servers.js'
import { runs } from './running.js'

// Option 61 of one machine differs from step to step: firmware sends a UUID or the MAC, iPXE and the
// initramfs the MAC, a running system a DUID or nothing. Two boards of a cheap maker may send the same UUID.

requirePrograms('busybox', 'dhcpd', 'kea-dhcp4', 'dnsmasq')

const bytes = (n: number) => mac(n).replaceAll(':', '')
/** What udhcpc is told for each kind of identifier; by itself it sends 01 and the MAC. */
const kinds = {
  uuid: (n: number) => ['-x', `0x3d:00${bytes(n)}0010203040506070809a`],
  mac: () => [],
  duid: (n: number) => ['-x', `0x3d:ff56504d9800020000ab11${bytes(n)}`],
  duidOfTime: (n: number) => ['-x', `0x3d:ff${bytes(n).slice(4)}00010001${bytes(n).slice(4)}${bytes(n)}`],
  text: (n: number) => ['-x', `0x3d:00${Buffer.from(`machine${n}`).toString('hex')}`],
  none: () => ['-C'],
  sharedUuid: () => ['-x', '0x3d:0003000200040005000006000700080009']
} as const
type Kind = keyof typeof kinds

const long = process.env.SVCD_LONG === '1'
const [machines, turns] = long ? [10, 5] : [2, 3]
/** Each machine has an order of its own. */
const orders: readonly (readonly Kind[])[] = [
  ['uuid', 'mac', 'duid', 'none', 'sharedUuid'],
  ['sharedUuid', 'none', 'duidOfTime', 'uuid', 'mac'],
  ['none', 'text', 'mac', 'duid', 'none', 'sharedUuid'],
  ['duid', 'mac', 'none', 'uuid', 'text'],
  ['mac', 'duidOfTime', 'sharedUuid', 'mac', 'none']
]

/** A range that has an address for each unknown machine, and one more. */
const objects: Objects = {
  network: {
    cluster: {
      ...{ network: '10.142.0.0/24', gateway: '10.142.0.251', dhcp: true },
      ...{ dhcp_range_begin: '10.142.0.50', dhcp_range_end: `10.142.0.${50 + machines}` }
    }
  },
  node: Object.fromEntries(
    [101, 102].map(n => [
      `n${n}`,
      {
        interfaces: [
          { interface: 'BOOTIF', network: 'cluster', macaddress: mac(n), ipaddress: `10.142.0.${n}` }
        ]
      }
    ])
  )
}

// rules 10.11
async function serves(t: Test, server: string): Promise<void> {
  const ask = await runs(t, { server, objects })
  const as = async (n: number, kind: Kind) => (await ask(n, 'ipxe', ...kinds[kind](n)))?.ip
  for (const n of [101, 102])
    for (const kind of (long ? orders.flat() : orders[n % 5]?.slice(0, 4)) ?? [])
      t.equal(await as(n, kind), `10.142.0.${n}`, `a node that sends ${kind} gets its own address`)
  const given = new Map<number, string | undefined>()
  for (let turn = 0; turn < turns; turn++)
    for (let n = 1; n <= machines; n++) {
      const kind = orders[n % orders.length]?.[turn] ?? 'none'
      const ip = await as(n, kind)
      t.match(ip, /^10\.142\.0\.\d+$/, `unknown machine ${n} that sends ${kind} gets an address`)
      if (turn === 0) given.set(n, ip)
      else t.equal(ip, given.get(n), 'the one that it had')
    }
  t.equal(new Set(given.values()).size, machines, 'each machine has an address of its own')
}

for (const server of dhcpServers)
  t.test(`${server}: a machine is its MAC, whatever it calls itself`, t => serves(t, server))
