import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { bindIn } from './bind.js'
import { controlScript, wire } from './namespaces.js'

requirePrograms('named', 'rndc', 'rndc-confgen', 'dig', 'dnsmasq')

const servers: Record<string, (directory: string, namespace: string) => Promise<string>> = {
  bind: bindIn,
  dnsmasq: async (directory, namespace) =>
    controlScript(directory, {
      namespace,
      command: `dnsmasq -k --conf-file=${directory}/svcd.conf --no-resolv --no-hosts --pid-file= --user=root --log-facility=-`,
      ready: 'started'
    })
}

async function serves(t: Test, server: string): Promise<void> {
  const between = await wire(t)
  await output('ip', ['-n', between.client, 'address', 'add', '10.142.0.2/24', 'dev', 'c0'])
  const directory = scratch(t)
  mkdirSync(join(directory, 'zones'))
  const control = await servers[server]?.(directory, between.server)
  const c: Daemon = await Daemon.start({
    directory,
    set: [
      ...[`dns.server=${server}`, `dns.config=${directory}/svcd.conf`, `dns.directory=${directory}/zones`],
      ...[
        `dns.control=${control}`,
        'dns.gather=0s',
        'controller.address=10.142.0.1',
        'http.url=http://10.142.0.1:7050'
      ]
    ]
  })
  t.teardown(() => c.stop())
  const post = async (path: string, body: object) => {
    const { status, body: answer } = await c.request('POST', path, body)
    if (status >= 300) throw new Error(`${path}: ${JSON.stringify(answer)}`)
  }
  await post('/config/network/cluster', { network: '10.142.0.0/22' })
  await post('/config/network/ipmi', { network: '10.149.0.64/26', ns_hostname: 'ns', ns_ip: '10.149.0.126' })
  await post('/config/group/compute', {
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster' },
      { interface: 'BMC', network: 'ipmi' }
    ]
  })
  await post('/config/node/node001', { group: 'compute' })
  await post('/config/node/node002', { group: 'compute', domain: 'hpc.example.com' })
  await post('/config/switch/sw1', { network: 'cluster', ipaddress: '10.142.3.200' })
  await post('/config/otherdev/pdu', { network: 'ipmi', ipaddress: '10.149.0.100' })
  await inForce(c, 'dns', false)
  t.match(await follow(c, '/service/dns/start'), { state: 'done' })
  await inForce(c, 'dns')

  const dig = async (...words: string[]) =>
    (await between.run('dig', '+short', '+time=2', '+tries=3', '@10.142.0.1', ...words)).trim()
  const both = async (name: string, address: string) =>
    t.same([await dig(name), await dig('-x', address)], [address, `${name}.`], `${name} both ways`)
  // Its start command is done before it listens.
  const listens = () =>
    dig('controller.cluster').then(
      () => true,
      () => false
    )
  await until(listens)
  await both('controller.cluster', '10.142.0.1')
  await both('node001.cluster', '10.142.0.2')
  await both('node001.ipmi', '10.149.0.65')
  await both('node002.hpc.example.com', '10.142.0.3')
  t.equal(await dig('node002.cluster'), '10.142.0.3', 'and its name in the network')
  await both('sw1.cluster', '10.142.3.200')
  await both('pdu.ipmi', '10.149.0.100')
  t.equal(await dig('ns.ipmi'), '10.149.0.126', 'the name server of the network')
  t.equal(await dig('node009.cluster'), '', 'nobody')
  const serial = async () => Number((await dig('cluster', 'SOA')).split(' ')[2])
  const before = server === 'bind' ? await serial() : 0

  await post('/config/node/node001', { newhostname: 'login' })
  await post('/config/network/storage', { network: '172.16.0.0/12' })
  await post('/config/otherdev/nas', { network: 'storage', ipaddress: '172.31.0.9' })
  await inForce(c, 'dns')
  // BIND answers a reload before it has loaded all zones.
  for (const name of ['login.cluster', 'nas.storage']) await until(async () => (await dig(name)) !== '')
  await both('login.cluster', '10.142.0.2')
  t.equal(await dig('node001.cluster'), '', 'its former name is nobody')
  await both('nas.storage', '172.31.0.9')
  t.equal((await c.request('GET', '/monitor/service/dns')).status, 200)
  if (server !== 'bind') return
  t.ok((await serial()) > before, 'the serial has grown')
  t.equal(await dig('ipmi', 'NS'), 'ns.ipmi.')
  t.notOk(readFileSync(join(directory, 'asked'), 'utf8').includes('restart'), 'new zones too take no restart')
}

// `make test` runs one of them.
const long = process.env.SVCD_LONG === '1'
// rules 10.8
for (const server of Object.keys(servers).filter(name => long || name === 'bind'))
  t.test(`${server} resolves both ways what the objects say`, t => serves(t, server))
