// DHCP and DNS of two controllers on a real etcd, with real servers: one lends the range, and both have equal
// zones with one serial.
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { bindIn } from '../../services/bind.js'
import { dhcpSettings } from '../../services/dhcp-servers.js'
import { lease, type Wire, wire } from '../../services/namespaces.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
import { output, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'

requirePrograms('busybox', 'dhcpd', 'named', 'named-checkzone', 'rndc', 'rndc-confgen', 'dig')

const mac = (n: number) => `52:54:00:00:00:0${n}`
const KNOWN = 1
const UNKNOWN = 9

/** A controller's servers, each on a wire of its own with a machine that asks. */
interface Servers {
  readonly daemon: Daemon
  readonly wire: Wire
  readonly directory: string
  readonly control: { readonly dns: string; readonly dhcp: string }
}

async function serversOf(t: Test, etcd: Parameters<typeof controllerOn>[1], i: number): Promise<Servers> {
  const between = await wire(t)
  await output('ip', ['-n', between.client, 'address', 'add', '10.142.0.9/24', 'dev', 'c0'])
  await output('ip', ['-n', between.client, 'link', 'set', 'c0', 'up'])
  const [dns, dhcp] = [scratch(t), scratch(t)]
  mkdirSync(join(dns, 'zones'))
  const control = await bindIn(dns, between.server)
  const daemon = await controllerOn(
    t,
    etcd,
    ...[`controller.name=c${i}`, `controller.address=10.142.0.${i}`],
    ...['dns.server=bind', `dns.config=${dns}/svcd.conf`, `dns.directory=${dns}/zones`],
    ...[`dns.control=${control}`, 'dns.gather=0s'],
    ...dhcpSettings('isc', { directory: dhcp, namespace: between.server, device: 'v0' })
  )
  return { daemon, wire: between, directory: dns, control: { dns: control, dhcp: join(dhcp, 'control') } }
}

const dhcpFile = ({ control }: Servers) => readFileSync(control.dhcp.replace(/control$/, 'dhcp.conf'), 'utf8')
const lends = (servers: Servers) => /^ *range /m.test(dhcpFile(servers))

async function dig({ wire }: Servers, ...words: string[]): Promise<string> {
  const said = await wire.run('dig', '+short', '+time=1', '+tries=2', '@10.142.0.1', ...words).catch(() => '')
  return said.trim()
}

const serialOf = async (servers: Servers, zone: string) =>
  Number((await dig(servers, zone, 'SOA')).split(' ')[2] ?? 0)

const conditionOf = async ({ daemon }: Servers, name: string) =>
  JSON.stringify((await daemon.request('GET', `/monitor/service/${name}`)).body)

// rules 11.18
t.test('two controllers with their servers, over changes, kill -9 and back', async t => {
  const etcd = await startEtcd(t)
  const [one, two] = [await serversOf(t, etcd, 1), await serversOf(t, etcd, 2)]
  const both = [one, two]
  await one.daemon.start()
  await until(() => isPrimary(one.daemon))
  await one.daemon.create('network', 'cluster', {
    network: '10.142.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.142.0.100',
    dhcp_range_end: '10.142.0.110'
  })
  await one.daemon.create('network', 'quiet', { network: '10.150.0.0/24' })
  await one.daemon.create('group', 'g', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  await one.daemon.create('node', 'n1', {
    group: 'g',
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.142.0.11', macaddress: mac(KNOWN) }
    ]
  })
  giveKeys(one.daemon, two.daemon)
  await two.daemon.start()
  for (const servers of both) {
    const zone = join(servers.directory, 'zones', 'cluster.zone')
    await until(() => existsSync(zone) && /n1 A/.test(readFileSync(zone, 'utf8')), 'the zones to be written')
    for (const control of Object.values(servers.control)) await output(control, ['start', 'x'])
  }

  const serials: number[] = []
  const zones = ['cluster', 'quiet', '0.142.10.in-addr.arpa', '0.150.10.in-addr.arpa']
  /** Waits until both answer this for a name, and compares the serials then. */
  const equal = async (what: string, name: string, address: string) => {
    await until(
      async () =>
        (await Promise.all(both.map(servers => dig(servers, name)))).every(found => found === address),
      () => [what, name, one.daemon.log().slice(-1500), two.daemon.log().slice(-1500)]
    )
    for (const zone of zones) {
      const [first, second] = await Promise.all(both.map(servers => serialOf(servers, zone)))
      t.ok(first, `${what}: ${zone} has a serial`)
      t.equal(second, first, `${what}: ${zone} has one serial`)
    }
    const files = both.map(({ directory }) =>
      zones.map(zone => readFileSync(join(directory, 'zones', `${zone}.zone`), 'utf8'))
    )
    t.strictSame(files[1], files[0], `${what}: the files are equal`)
    const serial = await serialOf(one, 'cluster')
    t.ok(serial > (serials.at(-1) ?? 0), `${what}: it has grown`)
    serials.push(serial)
  }
  await equal('at the start', 'c2.cluster', '10.142.0.2')
  const quiet = await serialOf(one, 'quiet')
  for (const servers of both)
    t.strictSame((await dig(servers, 'cluster', 'NS')).split('\n').sort(), ['c1.cluster.', 'c2.cluster.'])
  for (let i = 2; i <= 6; i++) {
    // Asked of both by turns: one hands it on.
    await (both[i % 2] as Servers).daemon.create('otherdev', `d${i}`, {
      network: 'cluster',
      ipaddress: `10.142.0.${20 + i}`
    })
    await equal(`change ${i}`, `d${i}.cluster`, `10.142.0.${20 + i}`)
  }
  const asked = ({ directory }: Servers) =>
    readFileSync(join(directory, 'asked'), 'utf8').replace(/status\n/g, '')
  const before = both.map(asked)
  await one.daemon.request('POST', '/config/node/n1', { comment: 'in no zone' })
  await new Promise(resolve => setTimeout(resolve, 1000))
  t.strictSame(both.map(asked), before, 'what changes no zone is not reloaded')

  const range = /^10\.142\.0\.1(0\d|10)$/
  const ask = async (servers: Servers, n: number) => {
    const found = await lease(servers.wire, join(servers.directory, 'client'), mac(n), 'ipxe')
    await output('ip', ['-n', servers.wire.client, 'address', 'replace', '10.142.0.9/24', 'dev', 'c0'])
    return found
  }
  const ranges = async (what: string, writer: Servers, standby: Servers) => {
    await until(() => lends(writer) && !lends(standby), `${what}: the range to be the writer's`)
    for (const { control } of both) {
      const at = control.dhcp.replace(/control$/, '')
      await output(join(at, 'dhcpd'), ['-t', '-cf', join(at, 'dhcp.conf')])
      await until(() => readFileSync(join(at, 'server.log'), 'utf8').includes('starting service'))
    }
    t.match(dhcpFile(standby), /# No range: another controller writes/)
    await until(
      async () => range.test((await ask(writer, UNKNOWN))?.ip ?? ''),
      `${what}: an address of the range`
    )
    t.equal(await ask(standby, UNKNOWN), undefined, `${what}: the standby lends none`)
    for (const servers of both)
      t.match(await ask(servers, KNOWN), { ip: '10.142.0.11' }, `${what}: both know the machine`)
  }
  await ranges('at the start', one, two)
  for (const servers of both)
    for (const name of ['dhcp', 'dns']) t.match(await conditionOf(servers, name), '"status":"ok"')

  await one.daemon.kill()
  await until(() => isPrimary(two.daemon))
  await until(() => lends(two), 'the range of the one that took over')
  t.ok(lends(one), 'nobody takes it from the server of a controller that is dead')
  await two.daemon.create('otherdev', 'd7', { network: 'cluster', ipaddress: '10.142.0.27' })
  await until(async () => (await dig(two, 'd7.cluster')) === '10.142.0.27')
  t.ok((await serialOf(two, 'cluster')) > (serials.at(-1) ?? 0), 'it grows over a takeover')
  t.equal(await dig(two, 'c1.cluster'), '10.142.0.1', 'a controller that is dead keeps its name')

  await one.daemon.start()
  await equal('it is back', 'd7.cluster', '10.142.0.27')
  await ranges('it is back', two, one)
  await two.daemon.create('otherdev', 'd8', { network: 'cluster', ipaddress: '10.142.0.28' })
  await equal('one more change', 'd8.cluster', '10.142.0.28')
  for (const servers of both)
    t.equal(await serialOf(servers, 'quiet'), quiet, 'a quiet zone was never touched')
  for (const servers of both) t.match(await conditionOf(servers, 'dns'), '"status":"ok"')

  two.daemon.child?.process.kill('SIGSTOP')
  await until(() => isPrimary(one.daemon))
  await until(() => lends(one))
  two.daemon.child?.process.kill('SIGCONT')
  await until(() => !lends(two), 'the range to go with the right to write')

  await two.daemon.stop()
  appendFileSync(join(two.daemon.tree, 'templates', 'dns', 'templ_bind_zone.cfg'), '; another site\n')
  await two.daemon.start()
  await until(
    async () => /is not that of the primary/.test(await conditionOf(two, 'dns')),
    'it to say that its zones are others'
  )
  await until(() =>
    readFileSync(join(two.directory, 'zones', 'cluster.zone'), 'utf8').includes('; another site')
  )
  await until(async () => (await serialOf(two, 'cluster')) > (await serialOf(one, 'cluster')), 'not behind')
  await until(() => lends(one))
  await one.daemon.stop()
  t.notOk(lends(one), 'who is stopped gives the range up')
  await until(() => lends(two), 'the range of the one that goes on')
  await until(async () => !(await isThere(two.daemon, 'c1')))
  await two.daemon.stop()
  t.ok(lends(two), 'the last one keeps it')
})
