import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { loadConfig } from '../../lib/config/load.js'
import { reasonOf } from '../../lib/services/control.js'
import { renderInThread, renderJob } from '../../lib/services/render-job.js'
import { settingsOf } from '../../lib/services/services.js'
import { Daemon } from '../support/daemon.js'
import { follow, inForce, LOOK_MS } from '../support/follow.js'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { many } from './cluster.js'
import { dhcpSettings } from './dhcp-servers.js'
import { Fake, named } from './fake.js'
import { lease, wire } from './namespaces.js'
import { templates as shipped } from './rendered.js'

requirePrograms('mount', 'umount', 'busybox')

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))

// rules 10.1
t.test('objects come into force: checked, swapped, taken up by the server', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', many(3))
  writeFileSync(fake.config, '# written by hand\n')
  await fake.start()
  t.match(fake.read(), /fixed-address 10\.1\.0\.3;/)
  t.same(fake.asked(), ['check', 'restart'])
  t.same(fake.service.condition, { ok: true, reason: '' })
  const kept = join(fake.directory, 'etc', '.main.conf.before-svcd')
  t.equal(fake.read(kept), '# written by hand\n', 'what was there before svcd is kept')
  await fake.change(many(4))
  t.match(fake.read(), /fixed-address 10\.1\.0\.4;/)
  t.equal(fake.read(kept), '# written by hand\n', 'once')
  t.same(fake.asked(), ['check', 'restart'])
  t.same(
    readdirSync(join(fake.directory, 'etc')).sort(),
    ['.main.conf.before-svcd', 'main.conf'],
    'nothing else stays, and no name that a server which reads a whole directory takes'
  )
})

t.test('a file of svcd is no other one’s, also when what svcd noted is lost', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', many(3))
  await fake.start()
  rmSync(join(fake.directory, 'state', 'services'), { recursive: true })
  fake.objects = many(4)
  await fake.restart()
  t.match(fake.read(), /fixed-address 10\.1\.0\.4;/)
  t.same(readdirSync(join(fake.directory, 'etc')), ['main.conf'])
})

t.test('the server can read what svcd writes, whatever the umask of svcd', async t => {
  const umask = process.umask(0o077)
  t.teardown(() => process.umask(umask))
  const fake = new Fake(t, 'dhcp', 'dnsmasq', many(3))
  const directory = join(fake.directory, 'files')
  rmSync(directory, { recursive: true })
  chmodSync(fake.directory, 0o755)
  const deep = { ...fake.settings, directory: join(directory, 'more', 'hosts') }
  await fake.restart({ settings: deep })
  for (const path of [directory, join(directory, 'more'), deep.directory])
    t.equal(statSync(path).mode & 0o777, 0o755, 'a directory')
  t.equal(statSync(join(deep.directory, '525400000001.host')).mode & 0o777, 0o644)
})

t.test('a directory that is not svcd’s alone: the admin’s own zones stay', async t => {
  const fake = new Fake(t, 'dns', 'bind', {
    network: { ...many(2).network, gone: { network: '11.0.0.0/8' } }
  })
  const file = (name: string) => join(fake.directory, 'files', name)
  writeFileSync(file('example.com.zone'), '; by hand\n')
  writeFileSync(file('cluster.zone'), '; mine\n')
  await fake.start()
  t.ok(fake.service.condition.ok)
  t.match(fake.read(file('gone.zone')), /SOA/)
  await fake.change(many(2))
  t.equal(fake.read(file('gone.zone')), undefined, 'a zone that svcd wrote goes with its network')
  t.equal(fake.read(file('example.com.zone')), '; by hand\n')
  t.match(fake.read(file('cluster.zone')), /Written by svcd/)
  t.equal(fake.read(file('.cluster.zone.before-svcd')), '; mine\n', 'one of the same name is kept')
  t.notMatch(await fake.service.preview(), 'example.com.zone')
})

t.test('what is refused goes with what it was about', async t => {
  const fake = new Fake(t, 'dhcp', 'dnsmasq', many(2))
  await fake.start()
  const main = fake.read()
  fake.flag('refuse')
  await fake.change(many(5))
  const hosts = join(fake.directory, 'etc', '.main.conf.hosts.rejected')
  t.match(fake.service.condition.reason, hosts, 'the file that the checker saw is named where it is now')
  t.match(fake.read(hosts), /dhcp-host=52:54/)
  t.equal(readdirSync(join(fake.directory, 'files')).filter(name => name.endsWith('.rejected')).length, 3)
  fake.unflag('refuse')
  await fake.change(many(2))
  t.ok(fake.service.condition.ok)
  t.equal(fake.read(), main)
  t.same(
    ['etc', 'files']
      .flatMap(name => readdirSync(join(fake.directory, name)))
      .filter(name => name.startsWith('.')),
    []
  )
})

t.test('kea is restarted where no control socket answers: its unit knows no reload', async t => {
  const fake = new Fake(t, 'dhcp', 'kea', named('good'))
  fake.flag('norel')
  await fake.start()
  t.same(fake.service.condition, { ok: true, reason: '' })
  t.match(fake.read(), /"good"/)
  t.same(fake.asked(), ['check', 'restart'])
  await fake.service.control('reload', new AbortController().signal)
  t.same(fake.asked(), ['restart'], 'also when the API asks for a reload')
  const shipped = loadConfig(ini, [
    'dhcp.server=kea',
    'controller.address=10.0.0.1',
    'http.listen=10.0.0.1:7050'
  ])
  t.equal(settingsOf('dhcp', shipped).controlSocket, '/run/kea/kea4-ctrl-socket', 'Debian’s is the usual one')
})

// rules 10.1
t.test('the same bytes: nothing is touched, checked or reloaded', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', many(3))
  await fake.start()
  fake.asked()
  const again = many(3)
  const node = again.node as Record<string, object>
  node.node00002 = Object.assign({}, node.node00002, { comment: 'another comment', vendor: 'x' })
  await fake.change(again)
  t.same(fake.asked(), [])
  t.ok(fake.service.condition.ok)
})

t.test('a burst of changes is one reload', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', many(1))
  await fake.start()
  fake.asked()
  for (let i = 2; i <= 50; i++) {
    fake.objects = many(i)
    fake.service.changed()
  }
  await fake.service.settled()
  t.same(fake.asked(), ['check', 'restart'])
  t.match(fake.read(), /fixed-address 10\.1\.0\.50;/)
})

// rules 10.1
t.test('what the checker refuses is kept beside, the last good file stays in force', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  const good = fake.read()
  fake.asked()
  await fake.change(named('forbidden'))
  t.equal(fake.read(), good)
  t.same(fake.asked(), ['check'], 'no reload')
  const { ok, reason } = fake.service.condition
  t.equal(ok, false)
  t.match(reason, /syntax error near forbidden/, 'in the words of the checker')
  const rejected = join(fake.directory, 'etc', '.main.conf.rejected')
  t.match(reason, `${rejected}:7`, 'which name the file where it is now')
  t.match(fake.read(rejected), /forbidden/)
  t.match(fake.log.join(''), /error dhcp: the rendered files are refused: .*syntax error near forbidden/)
  await fake.change(named('better'))
  t.match(fake.read(), /"better"/)
  t.ok(fake.service.condition.ok, 'well again with objects that can be rendered')
  t.equal(fake.read(rejected), undefined)
})

// rules 10.1, 10.10
for (const silent of [false, true])
  t.test(
    `a server that does not come back${silent ? ', of which its command says nothing,' : ''} gets the old file`,
    async t => {
      const fake = new Fake(t, 'dhcp', 'isc', named('good'))
      if (silent) fake.flag('silent')
      await fake.start()
      const good = fake.read()
      fake.asked()
      await fake.change(named('poison'))
      t.equal(fake.read(), good, 'the last good configuration is in force')
      t.ok(fake.read(join(fake.directory, 'running')) !== undefined, 'and the server runs')
      t.same(fake.asked(), ['check', 'restart', 'restart'])
      const { ok, reason } = fake.service.condition
      t.equal(ok, false)
      t.match(reason, silent ? /fake did not come back: \S/ : /restart fake ended with status 7: poisoned/)
      t.match(reason, /old files are in force again/)
      t.match(fake.read(join(fake.directory, 'etc', '.main.conf.rejected')), /poison/)
      await fake.change(named('better'))
      t.ok(fake.service.condition.ok)
      t.match(fake.read(), /"better"/)
    }
  )

/** What systemctl says of a dhcpd that ended at its start, as Debian 12 shows it. */
const ofSystemctl = `× isc-dhcp-server.service - LSB: DHCP server
     Loaded: loaded (/etc/init.d/isc-dhcp-server; generated)
     Active: failed (Result: exit-code) since Thu 2026-11-26 01:00:00 UTC; 1s ago
    Process: 812 ExecStart=/etc/init.d/isc-dhcp-server start (code=exited, status=1/FAILURE)
        CPU: 20ms

Nov 26 01:00:00 head dhcpd[824]: Wrote 0 leases to leases file.
Nov 26 01:00:00 head dhcpd[824]: Interface eth0 matches multiple shared networks
Nov 26 01:00:00 head dhcpd[824]:
Nov 26 01:00:00 head dhcpd[824]: If you think you have received this message due to a bug rather
Nov 26 01:00:00 head dhcpd[824]: than a configuration issue please read the section on submitting
Nov 26 01:00:00 head dhcpd[824]: bugs on either our web page at www.isc.org or in the README file
Nov 26 01:00:00 head dhcpd[824]: before submitting a bug.  These pages explain the proper
Nov 26 01:00:00 head dhcpd[824]: process and the information we find helpful for debugging.
Nov 26 01:00:00 head dhcpd[824]:
Nov 26 01:00:00 head dhcpd[824]: exiting.
Nov 26 01:00:02 head isc-dhcp-server[812]: Starting ISC DHCPv4 server: dhcpdcheck syslog for diagnostics. ... failed!
Nov 26 01:00:02 head systemd[1]: isc-dhcp-server.service: Control process exited, code=exited, status=1/FAILURE
Nov 26 01:00:02 head systemd[1]: Failed to start isc-dhcp-server.service - LSB: DHCP server.`

t.test('why a server ended: the first line of its own that tells it', async t => {
  const words = {
    systemctl: [ofSystemctl, 'Interface eth0 matches multiple shared networks'],
    'systemctl that may not see the log': [ofSystemctl.split('\n\n')[0], ''],
    dnsmasq: [
      'dnsmasq: failed to create listening socket for 10.1.1.1: Address already in use\nFAILED to start up',
      'dnsmasq: failed to create listening socket for 10.1.1.1: Address already in use'
    ],
    kea: [
      '2026-11-26 01:47:12.158 INFO  [kea-dhcp4.dhcp4/9] DHCP4_STARTING Kea\n' +
        '2026-11-26 01:47:12.160 ERROR [kea-dhcp4.dhcp4/9] DHCP4_PARSER_FAIL Subnet 10.1.0.0/24 differs\n' +
        '2026-11-26 01:47:12.161 ERROR [kea-dhcp4.dhcp4/9] DHCP4_INIT_FAIL failed to initialize Kea server',
      /DHCP4_PARSER_FAIL/
    ],
    named: [
      'Nov 26 01:00:00 head named[7]: starting BIND 9.18\n' +
        "Nov 26 01:00:00 head named[7]: /etc/bind/svcd.conf:3: unknown option 'zome'\n" +
        'Nov 26 01:00:00 head named[7]: loading configuration: failure\nexiting (due to fatal error)',
      "/etc/bind/svcd.conf:3: unknown option 'zome'"
    ],
    'a script': ['it is gone\nbye', 'it is gone'],
    nothing: ['', '']
  } as const
  for (const [what, [text = '', reason]] of Object.entries(words)) t.match(reasonOf(text), reason, what)
  t.equal(reasonOf(''), '')
})

// rules 10.1
t.test('a server whose restart fails with many lines: the first reason is told', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  writeFileSync(join(fake.directory, 'words'), ofSystemctl)
  fake.flag('systemd')
  await fake.start()
  const good = fake.read()
  await fake.change(named('poison'))
  t.equal(fake.read(), good)
  const { reason } = fake.service.condition
  t.match(reason, /Job for fake failed/)
  t.match(reason, /Interface eth0 matches multiple shared networks/)
  t.match(reason, /the old files are in force again/)
  t.notMatch(reason, /exiting|bug rather/)
})

// rules 10.1
t.test('dhcpd dies with a file that its check takes: the old one is brought back, and runs', async t => {
  const between = await wire(t)
  const directory = scratch(t)
  const place = { directory, namespace: between.server, device: 'v0' }
  const c = await Daemon.start({ directory, set: dhcpSettings('isc', place) })
  t.teardown(() => c.stop())
  const range = (third: number) => ({
    ...{ network: `10.${third}.0.0/24`, dhcp: true },
    ...{ dhcp_range_begin: `10.${third}.0.50`, dhcp_range_end: `10.${third}.0.59` }
  })
  await c.request('POST', '/config/network/cluster', range(142))
  await inForce(c, 'dhcp', false)
  t.match(await follow(c, '/service/dhcp/start'), { state: 'done' })
  await inForce(c, 'dhcp')
  await c.request('POST', '/config/network/cluster', range(143))
  let reason = ''
  await until(async () => {
    // A look has svcd ask the control command, which is some processes.
    await sleep(LOOK_MS)
    const { status, body } = await c.request('GET', '/monitor/service/dhcp')
    reason = JSON.stringify(body)
    return status === 503
  })
  t.match(reason, /No subnet declaration for v0 \(10\.142\.0\.1\)/)
  t.match(reason, /the old files are in force again/)
  t.match(await lease(between, directory, '52:54:00:00:00:09', 'plain'), { ip: /^10\.142\.0\.5\d$/ })
  await c.request('POST', '/config/network/cluster', range(142))
  await inForce(c, 'dhcp')
})

t.test('a reload that fails is tried again', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'), { retry: 30 })
  await fake.start()
  fake.flag('broken')
  await fake.change(named('better'))
  t.match(fake.service.condition.reason, /no good/)
  t.match(fake.read(), /"good"/, 'the old file, for a server that may start by itself')
  fake.unflag('broken')
  await until(() => fake.service.condition.ok, 'the reload without another change')
  t.match(fake.read(), /"better"/)
})

// rules 10.10
t.test('where systemd cannot be asked, the reason says what is missing', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  fake.flag('nobus')
  await fake.start()
  const reason =
    /cannot ask systemd whether fake runs: Failed to connect to bus: No such file or directory; install the package dbus/
  t.match(fake.service.condition, { ok: false, reason })
  fake.unflag('nobus')
  await fake.change(named('better'))
  await until(() => fake.service.condition.ok, 'it is asked again')
  t.match(fake.read(), /"better"/)
})

// rules 10.10
t.test('a server that is stopped is not started, and has the new file when it is', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  const { signal } = new AbortController()
  await fake.service.control('stop', signal)
  t.match(fake.service.condition, { ok: false, reason: /service fake does not run/ })
  fake.asked()
  await fake.change(named('better'))
  t.same(fake.asked(), ['check'], 'neither reload nor restart')
  t.match(fake.read(), /"better"/)
  t.same(fake.service.condition, { ok: false, reason: 'service fake does not run' }, 'said once')
  await fake.service.control('start', signal)
  await fake.change(named('better'))
  await until(() => fake.service.condition.ok)
  t.same(fake.service.condition, { ok: true, reason: '' })
  t.same(readdirSync(join(fake.directory, 'etc')), ['main.conf'])
})

t.test('a template that is not right leaves everything as it is, and is named', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  const good = fake.read()
  const templates = join(fake.directory, 'templates')
  cpSync(shipped, templates, { recursive: true })
  writeFileSync(join(templates, 'dhcp', 'templ_isc.cfg'), 'subnet {{ nothing }}')
  fake.objects = named('better')
  await fake.restart({ templates })
  t.match(fake.service.condition, { ok: false, reason: /^template dhcp\/templ_isc.cfg.*nothing/ })
  t.equal(fake.read(), good)
  await t.rejects(fake.service.preview(), /dhcp\/templ_isc.cfg/)
})

t.test(
  'a daemon that was killed between the swap and the reload does the reload after its start',
  async t => {
    const fake = new Fake(t, 'dhcp', 'isc', named('good'))
    await fake.start()
    await fake.restart()
    fake.asked()
    await fake.restart()
    t.same(fake.asked(), [], 'not without need')
    const notes = join(fake.directory, 'state', 'services', 'dhcp.json')
    writeFileSync(notes, String(fake.read(notes)).replace('"due": ""', '"due": "restart"'))
    await fake.restart()
    t.same(fake.asked(), ['restart'])
    await fake.restart()
    t.same(fake.asked(), [])
  }
)

t.test('a control command that is missing is named', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'))
  await fake.start()
  rmSync(join(fake.directory, 'control'))
  await fake.change(named('better'))
  t.match(fake.service.condition, { ok: false, reason: /control is not installed/ })
})

t.test('dnsmasq: a file for each machine, and one change touches one of them', async t => {
  const fake = new Fake(t, 'dhcp', 'dnsmasq', many(20))
  await fake.start()
  t.same(fake.asked(), ['check', 'check', 'restart'])
  const files = join(fake.directory, 'files')
  const before = new Map(readdirSync(files).map(name => [name, fake.read(join(files, name))]))
  t.equal(before.size, 20)
  // Both of them get the short menu.
  const other = many(22)
  const { node00004: _, node00021: __, ...nodes } = other.node as Record<string, object>
  await fake.change({ ...other, node: nodes })
  t.same(fake.asked(), ['check', 'reload'], 'its main file is the same: no restart')
  const after = readdirSync(files)
  t.same(
    [...before.keys()].filter(name => !after.includes(name)),
    ['525400000004.host'],
    'one has gone'
  )
  t.same(
    after.filter(name => !before.has(name)),
    ['525400000016.host'],
    'one has come'
  )
})

t.test('bind: a zone keeps its serial while it is the same, and no serial goes back', async t => {
  const fake = new Fake(t, 'dns', 'bind', many(2))
  const zone = (name: string) => fake.read(join(fake.directory, 'files', `${name}.zone`)) ?? ''
  const serial = (name: string) => Number(/(\d+) ; serial/.exec(zone(name))?.[1])
  fake.objects = { ...many(2), network: { ...many(2).network, other: { network: '11.0.0.0/8' } } }
  await fake.start()
  t.equal(serial('cluster'), fake.nowMs / 1000)
  const first = serial('cluster')
  const other = zone('other')
  fake.nowMs -= 86_400_000
  await fake.change({ ...many(3), network: fake.objects.network ?? {} })
  t.equal(serial('cluster'), first + 1, 'the clock stepped back: it grows all the same')
  t.equal(zone('other'), other, 'the zone that is the same is left alone')
  fake.objects = { ...many(4), network: fake.objects.network ?? {} }
  fake.nowMs -= 86_400_000
  await fake.restart()
  t.equal(serial('cluster'), first + 2, 'also after a restart')
  await fake.change({ ...named('else') })
  t.equal(zone('cluster'), '', 'its network has gone')
  await fake.change(many(4))
  t.equal(serial('cluster'), first + 3, 'it comes back with a serial that nobody has seen')
})

t.test('a full disk: nothing half, the reason is visible, and it goes on when there is room', async t => {
  const fake = new Fake(t, 'dhcp', 'dnsmasq', many(5))
  const { directory } = fake
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k,mode=0755', 'tmpfs', join(directory, 'files')])
  await fake.start()
  t.ok(fake.service.condition.ok)
  fake.asked()
  const files = () => readdirSync(join(directory, 'files')).sort()
  const before = files()
  const main = fake.read()
  await fake.change(many(100))
  t.same(files(), before)
  t.equal(fake.read(), main)
  t.match(fake.service.condition, { ok: false, reason: /cannot be written: ENOSPC/ })
  t.same(fake.asked(), [], 'neither check nor reload')
  await fake.change(many(6))
  t.ok(fake.service.condition.ok)
  t.equal(files().length, 6)
  execFileSync('umount', [join(directory, 'files')])
})

// rules 10.9
t.test('a preview shows what would be written, and writes nothing', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('good'), {
    render: (job, signal) => (job.preview ? renderInThread(job, signal) : Promise.resolve(renderJob(job)))
  })
  await fake.start()
  const good = fake.read()
  fake.objects = named('better')
  const [file, ...more] = JSON.parse(await fake.service.preview())
  t.same(more, [])
  t.equal(file.path, fake.config)
  t.match(file.text, /option domain-name "better";/)
  t.match(file.diff, /\n- {2}option domain-name "good";\n\+?/)
  t.match(file.diff, /\n\+ {2}option domain-name "better";\n/)
  t.equal(fake.read(), good)
})
