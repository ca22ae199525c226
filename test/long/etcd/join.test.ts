// `svcd join` with a real etcd, a real controller and a real ssh server.
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Child, start, startChild } from '../../support/child.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { locate, output, requirePrograms, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

requireRoot()
requirePrograms('ssh', 'sshd', 'ssh-keygen', 'unshare', 'base64')

const NAMES = ['admin-password', 'secret.key', 'token.key']
const NOBODY = 65534

/**
 * An ssh server on loopback that lets root in by a key of the test; `path`: programs that come before those
 * of the system.
 */
async function sshServer(t: Test, authorized: string, path = ''): Promise<number> {
  const directory = scratch(t)
  chmodSync(directory, 0o755)
  const port = await freePort()
  await output('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(directory, 'host')])
  cpSync(authorized, join(directory, 'authorized'))
  chmodSync(join(directory, 'authorized'), 0o600)
  writeFileSync(
    join(directory, 'config'),
    [
      ...[
        'ListenAddress 127.0.0.1',
        `Port ${port}`,
        `HostKey ${directory}/host`,
        'PidFile none',
        'UsePAM no'
      ],
      ...[
        `AuthorizedKeysFile ${directory}/authorized`,
        'StrictModes no',
        'PermitRootLogin prohibit-password'
      ],
      `SetEnv PATH=${path === '' ? '' : `${path}:`}/usr/sbin:/usr/bin:/sbin:/bin`,
      ''
    ].join('\n')
  )
  // It wants /run/sshd; what is mounted is seen by it alone.
  const words = `mount -t tmpfs run /run && mkdir -m 755 /run/sshd && exec ${locate('sshd')} -D -e -f "$1"`
  const server: Child = await startChild(
    ['unshare', '--mount', 'sh', '-c', words, 'sshd', join(directory, 'config')],
    said => said.includes('Server listening')
  )
  t.teardown(() => server.kill())
  return port
}

/** An ssh that asks nothing: what an admin has in ~/.ssh stands in a file of the test's. */
async function sshClient(t: Test) {
  const directory = scratch(t)
  const key = join(directory, 'id')
  await output('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', key])
  const asked = join(directory, 'asked')
  writeFileSync(asked, '')
  writeFileSync(
    join(directory, 'ssh'),
    `#!/bin/sh\nprintf '%s\\n' "$*" >>${asked}\nexec ${locate('ssh')} -F ${directory}/config "$@"\n`
  )
  chmodSync(join(directory, 'ssh'), 0o755)
  const use = (port: number) =>
    writeFileSync(
      join(directory, 'config'),
      [
        ...['Host *', `Port ${port}`, `IdentityFile ${key}`, 'IdentitiesOnly yes', 'BatchMode yes'],
        ...['StrictHostKeyChecking accept-new', `UserKnownHostsFile ${directory}/known.${port}`, '']
      ].join('\n')
    )
  return { directory, publicKey: `${key}.pub`, use, asked: () => readFileSync(asked, 'utf8') }
}

/** What `svcd join` says on the machine of a controller. */
async function joins(daemon: Daemon, ssh: string, set: readonly string[], source: string) {
  const settings = [
    ...['state', 'files'].map(name => `paths.${name}=${daemon.path(name)}`),
    `image.directory=${daemon.path('images')}`,
    ...set
  ]
  const child = start(
    join(daemon.tree, 'bin', 'svcd'),
    [
      ...['join', source, '--config', join(daemon.tree, 'etc', 'svcd.ini')],
      ...settings.flatMap(value => ['--set', value])
    ],
    { env: { PATH: `${ssh}:${process.env.PATH}` } }
  )
  const { code, stdout, stderr } = await child.ended
  return { code, text: stdout + stderr }
}

// rules 11.21
t.test('a controller joins another one', async t => {
  const etcd = await startEtcd(t)
  const first = await controllerOn(t, etcd, 'controller.name=c1')
  await first.start()
  await until(() => isPrimary(first))
  const client = await sshClient(t)
  const port = await sshServer(t, client.publicKey)
  client.use(port)
  const second = await controllerOn(t, etcd, 'controller.name=c2')
  const ini = ['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s', 'controller.name=c2']
  const state = second.path('state')
  const source = `root@127.0.0.1:${first.path('state')}`
  const said: string[] = []
  const ask = async (from = source, set: readonly string[] = ini) => {
    const answer = await joins(second, client.directory, set, from)
    said.push(answer.text)
    return answer
  }
  const keys = new Map(NAMES.map(name => [name, readFileSync(first.path('state', name))]))
  const there = () => (existsSync(state) ? readdirSync(state) : []).sort()
  const refused = async (message: RegExp, from = source, set: readonly string[] = ini) => {
    const before = there()
    t.match(await ask(from, set), { code: 1, text: message })
    t.strictSame(there(), before, 'nothing is changed')
  }

  await refused(/there is no directory \S+state, \[paths\] state; type: install -d -m 0700 -o root -g root/)
  mkdirSync(state, { mode: 0o700 })
  chownSync(state, NOBODY, NOBODY)
  for (const wrong of ['root@-oProxyCommand=id', 'a b', 'root@', 'host:state', 'root@ho;st:/x', '[::zz]:/x'])
    t.match(await ask(wrong), { code: 2, text: /join takes \[USER@\]HOST/ }, wrong)
  await refused(/\[store\] medium = files/, source, ['controller.name=c2'])
  await refused(/etcd at/, source, [...ini, `store.endpoints=http://127.0.0.1:${await freePort()}`])
  await refused(/holds no objects: there is nobody to join/, source, [...ini, 'store.prefix=/other/'])
  // Each controller says that it is there a moment after its start.
  await until(async () => {
    const answer = await ask(source, ini.with(-1, 'controller.name=c1'))
    return /controller\] name = c1 is that of the controller on \S+ .*: give this one a name/.test(
      answer.text
    )
  })
  const clone = {
    ...{ name: 'c2', host: hostname(), address: '10.141.0.9', port: 7050 },
    ini: join(second.tree, 'etc', 'svcd.ini')
  }
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const key = base64('/svcd/controllers/clone')
  await etcd.ask('kv/put', { key, value: base64(JSON.stringify(clone)) })
  await refused(/controller\] name = c2 is that of the controller on \S+ \(10\.141\.0\.9 port 7050\)/)
  await etcd.ask('kv/deleterange', { key })
  t.equal(client.asked(), '', 'nobody was asked before all that fits')
  for (const name of ['layout', 'node', 'intents', 'files']) mkdirSync(join(state, name))
  writeFileSync(join(state, 'node', 'n1.json'), '{}')
  await refused(
    /holds objects of its own, .* stop svcd on this machine and type mkdir -m 0700 \S+\.before-join/
  )
  const [, command = ''] = / type (mkdir .*) and this command again/.exec(said.at(-1) ?? '') ?? []
  await output('sh', ['-c', command])
  t.strictSame(there(), ['files'], 'what is no object stays')
  t.strictSame(readdirSync(join(`${state}.before-join`, 'node')), ['n1.json'])
  rmSync(join(state, 'files'), { recursive: true })
  // As a first start on files leaves it: that is no obstacle.
  for (const name of ['layout', 'node']) mkdirSync(join(state, name))
  writeFileSync(join(state, 'layout', 'version.json'), '{}')

  await refused(
    /there is no such directory, or root@127\.0\.0\.1 may not enter it/,
    'root@127.0.0.1:/nothing/there'
  )
  await refused(/there is no token\.key: that is no state directory of a controller/, 'root@127.0.0.1:/etc')
  client.use(await freePort())
  await refused(/Connection refused[\s\S]*root@127\.0\.0\.1 is not reached by ssh/)
  const clocks = scratch(t)
  chmodSync(clocks, 0o755)
  writeFileSync(join(clocks, 'date'), '#!/bin/sh\necho $(($(/usr/bin/date +%s) - 100))\n')
  chmodSync(join(clocks, 'date'), 0o755)
  client.use(await sshServer(t, client.publicKey, clocks))
  await refused(
    /the clock of \S+ is (99|100|101) s behind that of this machine, and 60 s are allowed: type timedatectl/
  )
  client.use(port)

  const others = scratch(t)
  for (const name of ['token.key', 'secret.key']) writeFileSync(join(others, name), randomBytes(32))
  await refused(
    /token\.key and secret\.key are not those of the controllers that write/,
    `127.0.0.1:${others}`
  )
  const marks = base64('/svcd/keys')
  const { kvs } = (await etcd.ask('kv/range', { key: marks })) as unknown as { kvs: [{ value: string }] }
  await etcd.ask('kv/deleterange', { key: marks })
  await refused(/has no marks by which the keys of \S+ could be checked: .* start it on the controller/)
  await etcd.ask('kv/put', { key: marks, value: kvs[0].value })
  for (const name of NAMES) cpSync(first.path('state', name), join(others, name))
  renameSync(join(others, 'admin-password'), join(others, 'private'))
  symlinkSync('private', join(others, 'admin-password'))
  await refused(/admin-password is a link, and is not followed/, `127.0.0.1:${others}`)
  rmSync(join(others, 'admin-password'))
  writeFileSync(join(others, 'admin-password'), '-----BEGIN A KEY\nof somebody\n')
  await refused(/admin-password holds no password/, `127.0.0.1:${others}`)
  writeFileSync(join(others, 'token.key'), 'short')
  await refused(/token\.key is damaged/, others)

  writeFileSync(join(state, 'token.key'), randomBytes(32), { mode: 0o600 })
  writeFileSync(join(state, 'admin-password'), 'of its own\n', { mode: 0o600 })
  // It has had objects in another etcd: these keys may be theirs.
  writeFileSync(join(state, 'objects-in-etcd'), '')
  await refused(
    /token\.key is not the one of .* type mv \S+admin-password \S+admin-password\.before-join && mv \S+token\.key \S+token\.key\.before-join and this/
  )
  rmSync(join(state, 'objects-in-etcd'))
  renameSync(join(state, 'token.key'), join(state, 'token.key.before-join'))
  await refused(/admin-password differ from those of \S+; nothing is changed/)
  rmSync(join(state, 'admin-password'))
  // The rest of what a stop in between left.
  cpSync(first.path('state', 'secret.key'), join(state, 'secret.key'))

  const joined = await ask()
  t.match(joined, {
    code: 0,
    text: /^copied from root@\S+ to \S+: admin-password, token\.key\nnext: svcd check, then systemctl/
  })
  for (const name of NAMES) {
    t.ok(readFileSync(join(state, name)).equals(keys.get(name) as Buffer), `${name} is that of the first one`)
    const { mode, uid, gid } = statSync(join(state, name))
    if (name !== 'secret.key') t.strictSame([mode & 0o777, uid, gid], [0o600, NOBODY, NOBODY], name)
  }
  t.strictSame(there(), [...NAMES, 'layout', 'node', 'token.key.before-join'].sort(), 'and nothing else')
  const calls = client.asked()
  t.match(await ask(), { code: 0, text: /has all that the other controllers have: nothing is copied/ })
  t.equal(client.asked(), calls, 'nobody is asked for what is there')

  const third = await controllerOn(t, etcd, 'controller.name=c3')
  mkdirSync(third.path('systemd', 'system'), { recursive: true })
  writeFileSync(
    third.path('systemd', 'system', 'svcd.service'),
    `[Service]\nUser=nobody\nExecStart=/usr/bin/svcd serve --config ${join(third.tree, 'etc', 'svcd.ini')}\n`
  )
  const joinsByHand = () =>
    joins(third, client.directory, [...ini, 'controller.name=c3'], first.path('state'))
  mkdirSync(third.path('state'), { mode: 0o755 })
  t.match(await joinsByHand(), {
    code: 1,
    text: /user nobody may not write in \S+; type, .*hand-over\.sh .* nobody/
  })
  // As an installation makes it; the unit says who runs svcd there.
  chmodSync(third.path('state'), 0o1771)
  chownSync(third.path('state'), 0, NOBODY)
  const byHand = await joinsByHand()
  t.match(byHand, {
    code: 0,
    text: /^copied from \/\S+ to \S+: admin-password, token\.key, secret\.key\nnote: the clocks/
  })
  for (const name of NAMES) {
    const { mode, uid } = statSync(third.path('state', name))
    t.strictSame([mode & 0o777, uid], [0o600, NOBODY], `${name} is for the user of the unit`)
  }

  // Its package has started svcd once, on files: it holds nothing but keys.
  const fourth = await controllerOn(t, etcd, 'controller.name=c4', 'store.medium=files')
  await fourth.start()
  const joinsFourth = () =>
    joins(fourth, client.directory, [...ini, 'controller.name=c4'], first.path('state'))
  t.match(await joinsFourth(), { code: 1, text: /svcd is running on \S+: stop it first/ })
  await fourth.stop()
  const made = new Map(NAMES.map(name => [name, readFileSync(fourth.path('state', name))]))
  mkdirSync(fourth.path('state', 'node'), { recursive: true })
  writeFileSync(fourth.path('state', 'node', 'n1.json'), '{}')
  t.match(await joinsFourth(), { code: 1, text: /holds objects of its own/ })
  for (const [name, bytes] of made)
    t.ok(readFileSync(fourth.path('state', name)).equals(bytes), `${name} stays`)
  rmSync(fourth.path('state', 'node', 'n1.json'))
  writeFileSync(fourth.path('state', 'token.key.before-join'), 'of an earlier try')
  // It fails half way; the same command again does the rest.
  await output('chattr', ['+i', fourth.path('state', 'secret.key')])
  const halfway = await joinsFourth().finally(() =>
    output('chattr', ['-i', fourth.path('state', 'secret.key')])
  )
  t.match(halfway, {
    code: 1,
    text: /kept aside: \S+admin-password\.before-join, \S+token\.key\.before-join\.\d+; type this command again/
  })
  const asInstalled = await joinsFourth()
  t.match(asInstalled, {
    code: 0,
    text: /^kept aside: \S+secret\.key\.before-join\ncopied from \S+ to \S+: admin-password, token\.key, secret\.key/
  })
  for (const name of NAMES)
    t.ok(
      readFileSync(fourth.path('state', name)).equals(keys.get(name) as Buffer),
      `${name} is that of the first one`
    )
  const asides =
    `${halfway.text} ${asInstalled.text}`.match(/(?<=kept aside: |, )\/\S+\.before-join(\.\d+)?/g) ?? []
  t.equal(asides.length, 3)
  for (const path of asides) {
    const [name = ''] = path.slice(fourth.path('state').length + 1).split('.before-join')
    t.ok(readFileSync(path).equals(made.get(name) as Buffer), `${path} is the one that was there`)
  }
  t.equal(readFileSync(fourth.path('state', 'token.key.before-join'), 'utf8'), 'of an earlier try')

  for (const key of keys.values())
    for (const text of [key.toString('latin1').trim(), key.toString('base64'), key.toString('hex')])
      for (const where of [...said, byHand.text, calls])
        t.notOk(where.includes(text), 'no byte of a key is told')

  for (const daemon of [second, third]) {
    await output('chown', ['-R', 'root:root', daemon.path('state')])
    await daemon.start()
    await until(async () => (await daemon.request('GET', '/config/cluster')).status === 200)
  }
  const { body } = await first.request('GET', '/config/cluster')
  await until(async () => {
    const { body } = await first.request('GET', '/config/cluster')
    const { cluster } = (body as { config: { cluster: Record<string, unknown> } }).config
    return ['c1', 'c2', 'c3'].every(name => name in cluster)
  }, JSON.stringify(body))
  t.match(await ask(), { code: 0, text: /nothing is copied/ }, 'also while it runs')
  for (const daemon of [third, second, first]) await daemon.stop()
})
