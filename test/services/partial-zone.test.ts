import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { bindIn } from './bind.js'
import { controlScript, type Wire, wire } from './namespaces.js'

requirePrograms('named', 'rndc', 'rndc-confgen', 'dig', 'dnsmasq')

const site = ['10.142.0.2', '5300'] as const
const servers: Record<string, (directory: string, namespace: string) => Promise<string>> = {
  bind: (directory, namespace) =>
    bindIn(
      directory,
      namespace,
      `recursion yes; allow-recursion { any; }; dnssec-validation no; empty-zones-enable no;
  forward only; forwarders { ${site[0]} port ${site[1]}; };`
    ),
  dnsmasq: async (directory, namespace) =>
    controlScript(directory, {
      namespace,
      command: `dnsmasq -k --conf-file=${directory}/svcd.conf --no-resolv --server=${site.join('#')} --pid-file= --user=root --log-facility=-`,
      ready: 'started'
    })
}

/** The site's own name server, which has names in the same zones. */
const siteNames = [
  ...['ldap.example.org,192.0.2.5', 'node001.example.org,192.0.2.66', 'ns.example.org,192.0.2.7'],
  ...['controller.example.org,192.0.2.8', 'printer.ipmi,192.0.2.9', 'old.cluster,192.0.2.10']
].map(text => `--host-record=${text}`)
const sitePointers = [
  '3.0.149.10.in-addr.arpa,mail.example.org',
  '77.0.149.10.in-addr.arpa,guest.example.org'
].map(text => `--ptr-record=${text}`)

/** Asks for these names and addresses by one dig. Returns each answer, or the status where there is none. */
async function answersOf({ run }: Wire, ...asked: string[]): Promise<string[]> {
  const words = asked.flatMap(name => (/^[\d.]+$/.test(name) ? ['-x', name] : [name]))
  const options = ['+noall', '+comments', '+answer', '+time=2', '+tries=3']
  const text = await run('dig', ...options, '@10.142.0.1', ...words)
  const replies = text.split(/^;; ->>HEADER<<-/m).slice(1)
  return replies.map(reply => {
    const values = [...reply.matchAll(/^[^;\s]\S*\s+\d+\s+IN\s+\w+\s+(.+)$/gm)].map(([, value]) => value)
    return values.join('\n') || (/status: (\w+)/.exec(reply)?.[1] ?? reply)
  })
}

async function serves(t: Test, server: string): Promise<void> {
  const between = await wire(t)
  await output('ip', ['-n', between.client, 'address', 'add', '10.142.0.2/24', 'dev', 'c0'])
  const directory = scratch(t)
  mkdirSync(join(directory, 'zones'))
  mkdirSync(join(directory, 'site'))
  const others = controlScript(join(directory, 'site'), {
    namespace: between.client,
    command: `dnsmasq -k --no-hosts --no-resolv --conf-file=/dev/null --port=${site[1]} --pid-file= --user=root --log-facility=- ${[...siteNames, ...sitePointers].join(' ')}`,
    ready: 'started'
  })
  await output(others, ['start', 'site'])
  const control = await servers[server]?.(directory, between.server)
  const c: Daemon = await Daemon.start({
    directory,
    set: [
      ...[`dns.server=${server}`, `dns.config=${directory}/svcd.conf`, `dns.directory=${directory}/zones`],
      ...[`dns.control=${control}`, 'dns.gather=0s', 'controller.address=10.142.0.1'],
      'http.url=http://10.142.0.1:7050'
    ]
  })
  t.teardown(() => c.stop())
  const post = async (path: string, body: object) => {
    const { status, body: answer } = await c.request('POST', path, body)
    if (status >= 300) throw new Error(`${path}: ${JSON.stringify(answer)}`)
  }
  await post('/config/network/cluster', { network: '10.142.0.0/24', dns: 'hosts' })
  await post('/config/network/ipmi', { network: '10.149.0.64/29', dns: 'hosts' })
  await post('/config/network/own', { network: '10.150.0.0/24' })
  await post('/config/group/compute', {
    domain: 'example.org',
    interfaces: ['cluster', 'ipmi', 'own'].map((network, i) => ({
      interface: ['BOOTIF', 'BMC', 'eth1'][i],
      network
    }))
  })
  await post('/config/node/node001', { group: 'compute' })
  await inForce(c, 'dns', false)
  t.match(await follow(c, '/service/dns/start'), { state: 'done' })
  await inForce(c, 'dns')
  const dig = (...names: string[]) => answersOf(between, ...names)
  await until(() =>
    dig('node001.own').then(
      () => true,
      () => false
    )
  )
  const node = (await c.request('GET', '/config/node/node001')).body
  const own = JSON.stringify(node).match(/10\.142\.0\.\d+/)?.[0] ?? ''
  const forward: Readonly<Record<string, string>> = {
    'node001.example.org': own,
    'node001.cluster': own,
    'node001.ipmi': '10.149.0.65',
    'ldap.example.org': '192.0.2.5',
    'ns.example.org': '192.0.2.7',
    'controller.example.org': '192.0.2.8',
    'printer.ipmi': '192.0.2.9',
    'old.cluster': '192.0.2.10',
    'node001.own': '10.150.0.1',
    'nobody.own': 'NXDOMAIN'
  }
  // Beside the /29 lie the last two.
  const back: Readonly<Record<string, string>> = {
    [own]: 'node001.example.org.',
    '10.149.0.65': 'node001.ipmi.',
    '10.149.0.3': 'mail.example.org.',
    '10.149.0.77': 'guest.example.org.'
  }
  const wanted = [...Object.values(forward), ...Object.values(back)]
  const asked = [...Object.keys(forward), ...Object.keys(back)]
  const answers = await dig(...asked)
  for (const [i, name] of asked.entries()) t.equal(answers[i], wanted[i], name)
  t.equal(answers.length, asked.length)
  await post('/config/node/node001', { newhostname: 'login' })
  await inForce(c, 'dns')
  // BIND answers a reload before it has loaded all zones.
  await until(async () => {
    const [login, before] = await dig('login.example.org', 'node001.example.org')
    return login === own && before === '192.0.2.66'
  })
  t.equal((await c.request('GET', '/monitor/service/dns')).status, 200)
  t.notOk(server === 'bind' && readFileSync(join(directory, 'asked'), 'utf8').includes('restart'))
}

// rules 10.14
for (const server of Object.keys(servers))
  t.test(`${server}: a zone that svcd does not own alone hides no name of the site`, t => serves(t, server))
