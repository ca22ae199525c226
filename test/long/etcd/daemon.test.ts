// The daemon with its objects in a real etcd: what dies, and who may write then.
import { randomBytes } from 'node:crypto'
import {
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { kinds } from '../../../lib/model/types.js'
import { makeCertificate } from '../../support/certificate.js'
import { Daemon } from '../../support/daemon.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { output } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { svcd } from '../../support/svcd.js'
import { until } from '../../support/until.js'
import { EtcdRefusal, watched } from '../../support/watched-etcd.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const network = { network: '10.141.0.0/16' }
const inEtcd = ({ url }: EtcdServer, ...more: string[]) => [
  'store.medium=etcd',
  `store.endpoints=${url}`,
  'store.ttl=2s',
  // Nobody listens there: what a standby hands on is refused at once.
  'store.url=http://127.0.0.1:1',
  ...more
]
const daemonIn = (t: Test, directory: string, set: readonly string[]): Daemon => {
  const daemon = new Daemon({ directory, set })
  t.teardown(() => daemon.kill())
  return daemon
}

const roleOf = async (daemon: Daemon) => {
  const { body } = await daemon.request('GET', '/monitor/service/svcd')
  return JSON.stringify(body)
}
const isPrimary = (daemon: Daemon) =>
  until(
    async () => (await roleOf(daemon)).includes('primary'),
    () => daemon.log()
  )

const objectFiles = (daemon: Daemon) =>
  ['network', 'node', 'group', 'layout', 'intents'].flatMap(type => {
    try {
      return readdirSync(daemon.path('state', type))
    } catch {
      return []
    }
  })

// rules 11.14
t.test(
  'kill -9 and a start: all is there; a second daemon writes nothing until the first is dead',
  async t => {
    const etcd = await startEtcd(t)
    const set = inEtcd(etcd)
    const first = daemonIn(t, scratch(t), set)
    await first.start()
    await first.create('network', 'cluster', network)
    for (let i = 0; i < 10; i++)
      await first.create('otherdev', `pdu${i}`, { network: 'cluster', ipaddress: `10.141.1.${i + 1}` })
    t.strictSame(objectFiles(first), [], 'no object is kept in files')

    const second = daemonIn(t, scratch(t), set)
    const refused = second.launch()
    t.teardown(() => refused.kill())
    const { code, stderr } = await refused.ended
    t.equal(code, 1)
    t.match(
      stderr,
      /another svcd writes, and \S+secret\.key is not there, and \S+token\.key is not there: copy secret\.key, /
    )
    t.match(
      await svcd(second, set, 'check'),
      { code: 1, text: /state: another svcd writes, and \S+secret\.key is not there, .*svcd join HOST/ },
      'check says what the start says'
    )
    giveKeys(first, second)
    writeFileSync(second.path('state', 'token.key'), randomBytes(32))
    t.match(await svcd(second, set, 'check'), { code: 1, text: /token\.key is not the one of the svcd that/ })
    const stranger = second.launch()
    t.teardown(() => stranger.kill())
    t.match(await stranger.ended, {
      code: 1,
      stderr:
        /another svcd writes, and \S+token\.key is not the one of the svcd that wrote last: copy secret\.key, token\.key and/
    })

    await first.kill()
    await first.start()
    await isPrimary(first)
    const { body } = await first.request('GET', '/config/otherdev')
    t.equal(Object.keys((body as { config: { otherdev: object } }).config.otherdev).length, 10)
    giveKeys(first, second)
    await first.create('otherdev', 'last', { network: 'cluster', ipaddress: '10.141.1.99' })
    await first.kill()

    await second.start()
    await isPrimary(second)
    const there = await second.request('GET', '/config/otherdev/last')
    t.equal(there.status, 200, 'the second one has it')
    await second.create('otherdev', 'next', { network: 'cluster', ipaddress: '10.141.1.100' })
    await second.stop()
  }
)

t.test(
  'who was stopped while another one took over commits nothing, and follows; then it writes again',
  async t => {
    const etcd = await startEtcd(t)
    const [first, second] = [daemonIn(t, scratch(t), inEtcd(etcd)), daemonIn(t, scratch(t), inEtcd(etcd))]
    await first.start()
    await first.create('network', 'cluster', network)
    giveKeys(first, second)
    first.child?.process.kill('SIGSTOP')
    await second.start()
    await isPrimary(second)
    await second.create('otherdev', 'b', { network: 'cluster', ipaddress: '10.141.1.2' })
    first.child?.process.kill('SIGCONT')
    const late = { config: { otherdev: { a: { network: 'cluster', ipaddress: '10.141.1.1' } } } }
    t.equal((await first.request('POST', '/config/otherdev/a', late)).status, 503)
    await until(async () => {
      const { status, body } = await first.request('POST', '/config/otherdev/a', late)
      return status === 503 && /the primary cannot be asked/.test(JSON.stringify(body))
    })
    await second.kill()
    await until(async () => (await first.request('POST', '/config/otherdev/a', late)).status === 201)
    t.equal((await first.request('GET', '/config/otherdev/b')).status, 200)
    await first.stop()
  }
)

// rules 11.15
t.test('a standby answers what machines read and names who writes; it takes over by itself', async t => {
  const etcd = await startEtcd(t)
  const first = daemonIn(t, scratch(t), inEtcd(etcd, 'controller.name=one'))
  const images = `image.directory=${first.path('images')}`
  const second = daemonIn(t, scratch(t), inEtcd(etcd, 'controller.name=two', images))
  await first.start()
  await isPrimary(first)
  await first.create('network', 'cluster', network)
  giveKeys(first, second)
  await second.start()
  const client = second.client()
  t.match(
    await roleOf(second),
    /"status":"ok".*standby: etcd at \S+: what is below \/svcd\/ is written by process /
  )
  await first.create('group', 'g', { provision_interface: 'BOOTIF' })
  await first.create('node', 'n1', { group: 'g' })
  await until(async () => (await client.get('/boot')).text.includes('n1'))
  const writer = first.client()
  for (const path of [
    '/boot',
    '/boot/manual/hostname/n1',
    '/boot/search/mac/52:54:00:00:00:01',
    '/kickstart/install/n1'
  ])
    t.strictSame(
      await client.get(path),
      await writer.get(path),
      `${path} is as the one that writes answers it`
    )
  for (const path of ['/boot/short', '/version', '/monitor/status', '/metrics'])
    t.equal((await client.get(path)).status, 200, path)
  const late = { config: { otherdev: { a: { network: 'cluster', ipaddress: '10.141.1.1' } } } }
  const refusals = [
    await second.request('POST', '/config/otherdev/a', late),
    await second.request('GET', '/config/node'),
    await second.request('GET', '/monitor/node'),
    await second.request('GET', '/config/node/n1/_delete')
  ]
  for (const { status, body } of refusals) {
    t.equal(status, 503)
    t.match(JSON.stringify(body), /the primary cannot be asked now \(ECONNREFUSED\)/)
  }
  const unreached =
    /controller one \(http:\/\/127\.0\.0\.1:1\), which writes, cannot be asked \(ECONNREFUSED\): the URL is that of this controller too; .*\[store\] url/
  t.match(await roleOf(second), unreached, 'health names it for an admin')
  t.equal(
    second
      .log()
      .split('\n')
      .filter(line => unreached.test(line)).length,
    1,
    'and the log, once'
  )
  const controller = `http://${client.address}:${client.port}/config/node`
  const { headers } = await fetch(controller, { headers: { 'x-access-tokens': client.token } })
  t.equal(headers.get('retry-after'), '5')
  t.equal((await fetch(controller)).status, 401, 'a stranger is told nothing of it')
  const short = await fetch(`http://${client.address}:${client.port}/config/osimagetag`)
  t.equal(short.status, 503, 'who may see names without a token')
  t.notMatch(
    await short.text(),
    /etcd at|process \d|127\.0\.0\.1/,
    'is not told where etcd is, and who writes'
  )
  await first.kill()
  await isPrimary(second)
  t.equal((await second.request('POST', '/config/otherdev/a', late)).status, 201)
  t.equal((await second.request('GET', '/config/node/n1')).status, 200)
  await second.stop()
})

// rules 11.15
t.test('the settings of the ini come into force after a takeover, also if etcd fails at first', async t => {
  const etcd = await startEtcd(t)
  let refused = 0
  const url = await watched(t, etcd, {
    before: ({ writes }) => {
      if (refused >= 2 || !Object.keys(writes).some(key => key.startsWith('/svcd/objects/cluster/'))) return
      refused++
      return new EtcdRefusal({ error: 'not now', code: 3 })
    }
  })
  const [first, second] = [
    daemonIn(t, scratch(t), inEtcd(etcd)),
    daemonIn(t, scratch(t), inEtcd({ ...etcd, url }, 'cluster.ntp_server=10.141.0.3'))
  ]
  await first.start()
  await first.create('network', 'cluster', network)
  const settings = { config: { cluster: { ntp_server: '10.141.0.9' } } }
  t.match(await first.request('POST', '/config/cluster', settings), { status: 204 })
  giveKeys(first, second)
  await second.start()
  await first.kill()
  await isPrimary(second)
  const range = { key: base64('/svcd/objects/cluster/'), range_end: base64('/svcd/objects/cluster0') }
  const end = performance.now() + 30_000
  let isOver = false
  while (!isOver && performance.now() < end) {
    const { kvs = [] } = await etcd.ask('kv/range', range)
    isOver = (kvs as { value: string }[]).every(({ value }) => !atob(value).includes('10.141.0.9'))
  }
  t.ok(isOver, 'the setting has ended')
  t.ok(refused > 0, `it was refused ${refused} times`)
  await second.stop()
})

t.test('check, and a start, name the key of the ini and the way out', async t => {
  const etcd = await startEtcd(t)
  const daemon = daemonIn(t, scratch(t), inEtcd(etcd))
  const fine = await svcd(daemon, inEtcd(etcd), 'check')
  t.match(fine, { code: 0, text: /^ok$/m })
  const password = daemon.path('password')
  writeFileSync(password, 'x\n', { mode: 0o644 })
  const wrong = [
    'ca=/nowhere/ca.pem',
    'cert=/etc/hostname',
    'key=/etc/hostname',
    'user=u',
    `password_file=${password}`
  ]
  const told = await svcd(daemon, inEtcd(etcd, ...wrong.map(one => `store.${one}`)), 'check')
  t.equal(told.code, 1)
  t.match(told.text, /--set store.ca: \[store\] ca: there is no file \/nowhere\/ca.pem; put it there/)
  t.match(told.text, /\[store\] cert: \/etc\/hostname holds no certificate in PEM form/)
  t.match(told.text, /\[store\] password_file: \S+ has mode 0644: .*chmod 0640/)
  // A second member that never comes: one of two is no majority.
  await etcd.ask('cluster/member/add', { peerURLs: [`http://127.0.0.1:${await freePort()}`] })
  t.match(await svcd(daemon, inEtcd(etcd), 'check'), {
    code: 1,
    text: /\[store\] endpoints: etcd at \S+: etcdserver: .*; most of its members have to run, two of three: type etcdctl --endpoints=\S+ endpoint health/
  })
  etcd.child.process.kill('SIGKILL')
  const gone = await svcd(daemon, inEtcd(etcd), 'check')
  t.match(gone.text, /\[store\] endpoints: etcd at http:\S+: .*ECONNREFUSED.*look whether it runs/)
})

// rules 7.7
t.test('check warns of each endpoint that does not answer while another one does', async t => {
  const member = '127.23.80.1'
  const files = await makeCertificate(scratch(t), 'etcd', 90, '/CN=etcd', [member])
  const etcd = await startEtcd(t, { ...files, trusted: files.certificate }, [], member)
  const daemon = daemonIn(t, scratch(t), [])
  const dead = `http://127.0.0.1:${await freePort()}`
  const check = (...endpoints: string[]) =>
    svcd(daemon, [...inEtcd(etcd), `store.endpoints=${endpoints}`, `store.ca=${files.certificate}`], 'check')
  const warned = ({ text }: { readonly text: string }) =>
    text.split('\n').filter(line => line.includes('[store] endpoints'))
  t.strictSame(warned(await check(etcd.url)), [])
  const one = await check(dead, etcd.url)
  t.match(one, { code: 0, text: /^ok$/m })
  t.strictSame(warned(one), [
    `warning: [store] endpoints: ${dead} does not answer (ECONNREFUSED); the other one does`
  ])
  const two = warned(await check(etcd.url, dead, `https://${member}:2380`))
  t.equal(two.length, 2)
  t.equal(two[0], `warning: [store] endpoints: ${dead} does not answer (ECONNREFUSED); 1 of 3 does`)
  t.match(
    two[1],
    /: https:\/\/127\.23\.80\.1:2380 does not answer \(ERR_SSL_\S*CERTIFICATE\S*\); 1 of 3 does; is this 2380, the port of members\?$/
  )
  const untrusted = await check(etcd.url, etcd.tlsUrl, `https://localhost:${new URL(etcd.tlsUrl).port}`)
  t.match(warned(untrusted)[1], /does not answer \(its certificate is for another name: name the endpoint/)
  etcd.child.process.kill('SIGKILL')
  t.match(await check(etcd.url, dead), {
    code: 1,
    text: /\[store\] endpoints: etcd at http:\S+: .*ECONNREFUSED/
  })
  t.strictSame(
    warned(await check(etcd.url, dead)).filter(line => line.startsWith('warning')),
    [],
    'none answers'
  )
})

t.test('objects in files are not forgotten in silence; a backup has what is in etcd', async t => {
  const etcd = await startEtcd(t)
  const directory = scratch(t)
  const files = daemonIn(t, directory, [])
  await files.start()
  await files.create('network', 'cluster', network)
  await files.stop()
  const set = inEtcd(etcd)
  t.match(await svcd(files, set, 'serve'), {
    code: 1,
    text: /holds objects, and etcd at \S+: \/svcd\/ holds none: type svcd store copy files etcd/
  })
  const asRoot = 'holds none: type svcd store copy files etcd; to begin'
  t.match((await svcd(files, set, 'check')).text, asRoot)
  chownSync(files.path('state'), 65_534, 65_534)
  const asOwner = 'holds none: type runuser -u nobody -- svcd store copy files etcd; to begin'
  t.match((await svcd(files, set, 'check')).text, asOwner)
  t.match(await svcd(files, set, 'serve'), { code: 1, text: asOwner })
  chownSync(files.path('state'), 0, 0)
  t.match(await svcd(files, set, 'backup', files.path('empty.tar')), {
    code: 1,
    text: /etcd at \S+: \/svcd\/ holds no objects: look at \[store\] prefix/
  })

  const other = daemonIn(t, scratch(t), set)
  await other.start()
  await other.create('network', 'moved', network)
  const archive = other.path('backup.tar')
  const put = (key: string, value: string) => etcd.ask('kv/put', { key: base64(key), value: base64(value) })
  await put('/svcd/objects/secret.key/x', 'planted')
  for (const moment of ['while it runs', 'while it does not']) {
    t.match(await svcd(other, set, 'backup', archive), { code: 0 })
    const text = readFileSync(archive).toString('latin1')
    t.match(text, /state\/network\/moved\.json/, moment)
    t.match(text, /"version":\s*[1-9]/, moment)
    t.notMatch(text, 'planted', moment)
    await other.stop()
  }
  await put('/svcd/intent', '{"id":"9-1","writes":3}')
  t.match(await svcd(other, set, 'backup', archive), { code: 1, text: /\/svcd\/intent: a damaged intent/ })
})

// rules 11.14
t.test(
  'who has had objects in etcd does not begin on one that holds nothing; a backup gets there',
  async t => {
    const etcd = await startEtcd(t)
    const set = inEtcd(etcd)
    const daemon = daemonIn(t, scratch(t), set)
    await daemon.start()
    await daemon.create('network', 'cluster', network)
    const archive = daemon.path('backup.tar')
    t.match(await svcd(daemon, set, 'backup', archive), { code: 0 })
    await daemon.stop()
    await daemon.start()
    await daemon.stop()
    const all = { key: base64('/svcd/'), range_end: base64('/svcd0') }
    t.match(await svcd(daemon, set, 'check'), { code: 0, text: /^ok$/m })
    await etcd.ask('kv/deleterange', all)
    const refused = {
      code: 1,
      text: /etcd at \S+: \/svcd\/ holds nothing, and this svcd has had its objects .* remove \S+state\/objects-in-etcd$/m
    }
    // A start that is not refused does not end.
    if (!t.match(await svcd(daemon, set, 'check'), refused)) return
    t.match(await svcd(daemon, set, 'serve'), refused)
    t.notOk('kvs' in (await etcd.ask('kv/range', all)), 'nothing is written there')

    const restored = await svcd(daemon, set, 'restore', '--force', archive)
    const removal = `etcdctl --endpoints=${etcd.url} del --prefix /svcd/`
    t.equal(restored.code, 0, restored.text)
    t.ok(
      restored.text.includes(
        `; next: stop svcd on all controllers, then ${removal}, then svcd store copy files etcd, then svcd check, then start svcd`
      ),
      restored.text
    )
    t.match(await svcd(daemon, set, 'store', 'copy', 'files', 'etcd'), { code: 0 })
    const full = await svcd(daemon, set, 'store', 'copy', 'files', 'etcd')
    t.ok(full.text.includes(`stop svcd on all controllers and type: ${removal}\n`), full.text)
    t.match(full, {
      code: 1,
      text: /nothing is copied; they may be those that were copied before: then nothing is to be done, start svcd\. .*: svcd backup FILE first; then/
    })
    await daemon.start()
    t.equal((await daemon.request('GET', '/config/network/cluster')).status, 200)
    await daemon.stop()

    await etcd.ask('kv/deleterange', all)
    t.match(await svcd(daemon, set, 'serve'), refused, 'also while old objects are in files')
    for (const name of ['layout', 'objects-in-etcd']) rmSync(daemon.path('state', name), { recursive: true })
    await daemon.start()
    t.equal((await daemon.request('GET', '/config/network/cluster')).status, 404, 'who wants to begins anew')
    await daemon.stop()
  }
)

/** All objects in the files of a state, path → text. */
function filesOf(state: string): Record<string, string> {
  const found: Record<string, string> = {}
  for (const type of [...Object.keys(kinds), 'layout'])
    for (const name of readdirSync(join(state, type)))
      found[`${type}/${name}`] = readFileSync(join(state, type, name), 'utf8')
  return found
}

t.test('objects are copied to etcd and back, byte by byte; a target with objects is refused', async t => {
  const etcd = await startEtcd(t)
  const set = inEtcd(etcd)
  const daemon = daemonIn(t, scratch(t), [])
  const copy = (...words: string[]) => svcd(daemon, set, 'store', 'copy', ...words)
  t.match(await copy('files', 'files'), { code: 2, text: /store takes copy files etcd, or copy etcd files/ })
  t.match(await copy('etcd', 'files'), {
    code: 1,
    text: /etcd at \S+: \/svcd\/ holds no objects, or those of a release before 1.0: .*; nothing is copied/
  })
  await daemon.start()
  await daemon.create('network', 'cluster', network)
  await daemon.create('group', 'g', {})
  const nodes = Object.fromEntries(
    Array.from({ length: 150 }, (_, i) => [`n${i}`, { name: `n${i}`, group: 'g', comment: 'x'.repeat(i) }])
  )
  for (const [name, fields] of Object.entries(nodes).slice(0, 5)) await daemon.create('node', name, fields)
  const document = await daemon.request('GET', '/config/cluster/export')
  t.match(await copy('files', 'etcd'), {
    code: 1,
    text: /is in use by process \d+: stop svcd first \(systemctl/
  })
  await daemon.stop()
  chownSync(daemon.path('state', 'node'), 65_534, 65_534)
  t.match(await copy('files', 'etcd'), {
    code: 1,
    text: /state\/node belongs to user nobody: type runuser -u nobody -- svcd store copy files etcd/
  })
  chownSync(daemon.path('state', 'node'), 0, 0)
  const before = filesOf(daemon.path('state'))
  // More than one transaction of etcd takes.
  for (const [name, fields] of Object.entries(nodes).slice(5)) {
    const text = `${JSON.stringify(fields, null, 2)}\n`
    writeFileSync(daemon.path('state', 'node', `${name}.json`), text)
    before[`node/${name}.json`] = text
  }
  const there = await copy('files', 'etcd')
  t.match(there, { code: 0, text: /copied and compared: \d+ objects from \S+ to etcd at \S+: \/svcd\// })
  t.match(there.text, new RegExp(`: ${Object.keys(before).length} objects`))
  const [, aside = ''] = /^once all is well: .*, as root: (mkdir .*)$/m.exec(there.text) ?? []
  t.match(await copy('files', 'etcd'), {
    code: 1,
    text: /holds objects already \(.*node.*\): nothing is copied/
  })
  t.match(await copy('etcd', 'files'), { code: 1, text: /holds objects already/ })

  const moved = daemonIn(t, scratch(t), set)
  for (const name of ['secret.key', 'token.key']) {
    mkdirSync(moved.path('state'), { recursive: true, mode: 0o700 })
    copyFileSync(daemon.path('state', name), moved.path('state', name))
  }
  await moved.start()
  t.equal((await moved.request('GET', '/config/node/n149')).status, 200)
  const { body } = await moved.request('GET', '/config/cluster/export')
  t.match(body, document.body as object)
  t.match(await copy('etcd', 'files'), {
    code: 1,
    text: /is written by process \d+ on \S+: stop svcd there first/
  })
  await moved.stop()

  renameSync(daemon.path('state', 'node'), daemon.path('node'))
  t.match(await copy('etcd', 'files'), { code: 1, text: /holds objects already/ })
  renameSync(daemon.path('node'), daemon.path('state', 'node'))
  await output('sh', ['-c', aside])
  t.strictSame(filesOf(daemon.path('state.before-etcd')), before, 'all objects are moved aside')
  t.ok(existsSync(daemon.path('state', 'secret.key')), 'and nothing else')
  t.match(await copy('etcd', 'files'), {
    code: 0,
    text: /on all other controllers, before .* disable --now svcd/
  })
  t.strictSame(filesOf(daemon.path('state')), before)
})
