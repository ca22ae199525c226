import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from 'node:fs'
import { createServer, request, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { basename, join } from 'node:path'
import t, { type Test } from 'tap'
import { outcomeLines } from '../../lib/ctl/render.js'
import { makeTree } from '../image/small-tree.js'
import { addNode, bmcCluster } from '../support/bmc-cluster.js'
import { builtTree, onTerminal } from '../support/built-tree.js'
import { expire, makeCertificate } from '../support/certificate.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { RedfishService } from '../support/redfish-service.js'
import { scratch } from '../support/scratch.js'
import { clientHere, svcctlServed } from '../support/svcctl.js'

const tree = builtTree(t.testdir({ cache: {}, files: {}, 'own-roles': { a: 'echo a\n', b: 'echo b\n' } }))
const program = join(tree, 'bin', 'svcctl')
const cache = join(tree, 'cache')
const port = await freePort()
const { certificate, key } = await makeCertificate(join(tree, 'files'), 'controller')
const c = await Controller.start(
  t,
  `paths.roles=${join(tree, 'own-roles')}`,
  ...[`http.tls_certificate=${certificate}`, `http.tls_key=${key}`, 'http.tls_port=0'],
  `control.redfish_port=${port}`,
  'control.time_limit=2s',
  'control.delay=0s'
)
const url = `http://127.0.0.1:${c.daemon.port}`
const env = { SVCD_URL: url, XDG_CACHE_HOME: cache, NO_COLOR: '' }
const password = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8')

const run = (args: readonly string[], input = '', more: Record<string, string> = {}) =>
  start(program, args, { input, env: { ...env, ...more } }).ended
/** Runs it here to a good end; gives what it printed. */
async function ok(t: Test, args: readonly string[], input = ''): Promise<string> {
  const { code, stdout, stderr } = await here(args, { input })
  t.same([code, stderr], [0, ''], args.join(' '))
  return stdout
}
const terminal = (args: readonly string[], more: Record<string, string> = {}) =>
  onTerminal(
    'env',
    ...Object.entries({ ...env, ...more }).map(([key, value]) => `${key}=${value}`),
    program,
    ...args
  )
interface Here {
  readonly tty?: boolean
  readonly input?: string
  readonly more?: Record<string, string>
  /** A person types this, to a question or without echo. */
  readonly types?: string
}
/** The same without a process of its own; `tty`: on a terminal. */
const here = (args: readonly string[], { more = {}, types, ...meets }: Here = {}) =>
  clientHere(args, { ...env, ...more }, types === undefined ? meets : { ...meets, answers: () => types })
const tokenFile = join(cache, 'svcd', `token-${encodeURIComponent(url)}`)

// rules 14.1
t.test('login: the token is kept for this user alone', async t => {
  const before = await run(['node', 'list'])
  t.match(before, { code: 1, stdout: '', stderr: 'svcctl: you are not logged in; type: svcctl login USER\n' })
  t.match(await here(['login', '--stdin'], { input: 'wrong\n' }), {
    code: 1,
    stderr: /user name or password is wrong/
  })
  t.match(await run(['login'], ''), { code: 2, stderr: /no terminal.*--stdin/ })
  // What another program left open is closed.
  mkdirSync(join(cache, 'svcd'), { mode: 0o755 })
  const { says, type, ended } = terminal(['login', 'admin'])
  await says(`Password of admin at ${url}: `)
  type(`${password.trim()}\r`)
  const { code, stdout } = await ended
  t.equal(code, 0)
  t.notMatch(stdout, password.trim())
  t.equal(statSync(join(cache, 'svcd')).mode & 0o777, 0o700)
  t.equal(statSync(tokenFile).mode & 0o777, 0o600)
  t.same(readdirSync(join(cache, 'svcd')).length, 1, 'no temporary file is left')
})

// rules 14.1
t.test('logins at once, and what a killed one left', async t => {
  const directory = join(cache, 'svcd')
  const lock = `${tokenFile}.lock`
  const login = () => here(['login', '--stdin'], { input: password })
  // As if killed 6 s ago.
  mkdirSync(lock)
  utimesSync(lock, Date.now() / 1000 - 6, Date.now() / 1000 - 6)
  const other = `${tokenFile}%2Fsite.20261126`
  for (const file of [`${tokenFile}.4294967295`, other]) writeFileSync(file, 'secret', { mode: 0o600 })
  for (const { code, stderr } of await Promise.all([login(), login(), login()])) t.equal(code, 0, stderr)
  t.same(readdirSync(directory).sort(), [basename(tokenFile), basename(other)])
  await ok(t, ['node', 'list'])
  // A login makes good what no other command reads.
  rmSync(tokenFile)
  symlinkSync(other, tokenFile)
  t.match(await login(), { code: 0 })
  t.equal(readFileSync(other, 'utf8'), 'secret')
  writeFileSync(`${tokenFile}.4294967295`, 'secret', { mode: 0o600 })
  await ok(t, ['logout'])
  t.same(readdirSync(directory), [basename(other)])
  await ok(t, ['logout'])
  rmSync(other)
  t.match(await login(), { code: 0 })
})

// rules 14.2
t.test('one object of a type and its fields', async t => {
  const script = join(tree, 'files', 'part.sh')
  writeFileSync(script, '#!/bin/sh\necho \u00e9\n')
  t.equal(await ok(t, ['network', 'add', 'cluster', 'network=10.141.0.0/16']), 'network cluster created\n')
  const fields = [
    'domain=hpc',
    `partscript=@${script}`,
    'variables.rack=7',
    'BOOTIF.network=cluster',
    'roles=a,b'
  ]
  await ok(t, ['group', 'add', 'compute', ...fields])
  const { group } = (await c.get('/config/group/compute')).body.config
  t.match(group.compute, {
    domain: 'hpc',
    partscript: Buffer.from('#!/bin/sh\necho \u00e9\n').toString('base64'),
    variables: { rack: '7' },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }],
    roles: 'a,b'
  })
  const shown = await ok(t, ['group', 'show', 'compute'])
  t.match(shown, /^domain +hpc \(group\)$/m)
  t.match(shown, /^partscript +\(group\)\n {4}#!\/bin\/sh\n {4}echo \u00e9\n/m)
  t.match(shown, /^BOOTIF {2}network=cluster$/m)
  const more = ['netboot=no', 'variables.rack=', 'comment=-', 'domain=', 'newgroupname=thin']
  t.equal(await ok(t, ['group', 'set', 'compute', ...more], '@home\n'), 'group compute updated\n')
  const { thin } = (await c.get('/config/group/thin')).body.config.group
  t.match(thin, { netboot: false, variables: {}, comment: '@home\n', domain: null })
  await ok(t, ['group', 'rename', 'thin', 'compute'])
  await ok(t, ['group', 'clone', 'compute', 'fat', 'comment=@@home'])
  t.equal((await c.get('/config/group/fat')).body.config.group.fat.comment, '@home')
  t.equal(await ok(t, ['group', 'rm', 'fat']), 'group fat deleted\n')
  await ok(t, ['bmcsetup', 'add', 'boards', 'password=-', 'userid=3'], 'secret\n')
  t.match((await c.get('/config/bmcsetup/boards')).body.config.bmcsetup.boards, {
    password: 'secret',
    userid: 3
  })
})

// rules 14.2
t.test('an empty text unsets nothing', async t => {
  const stored = async () => (await c.get('/config/bmcsetup/boards')).body.config.bmcsetup.boards
  const before = await stored()
  t.equal(before.password, 'secret')
  const empty = join(tree, 'files', 'empty')
  writeFileSync(empty, '')
  const table: [word: string, given: Here][] = [
    ['password=-', {}],
    ['password=-', { input: '\n' }],
    ['password=-', { types: '' }],
    [`password=@${empty}`, {}],
    ['comment=-', {}]
  ]
  for (const [word, given] of table) {
    const field = word.split('=')[0]
    const says = new RegExp(`${field}: .+ gives no text; ${field}= unsets it`)
    t.match(
      await here(['bmcsetup', 'set', 'boards', word], given),
      { code: 2, stdout: '', stderr: says },
      word
    )
  }
  t.same(await stored(), before)
})

t.test('nodes and node sets; what a program reads has no colour', async t => {
  for (const i of [1, 2])
    await ok(t, ['node', 'add', `node00${i}`, 'group=compute', `BOOTIF.macaddress=52:54:00:00:00:0${i}`])
  t.equal(await ok(t, ['node', 'set', 'node[001-002]', 'comment=x y']), '2 nodes updated\n')
  t.equal(
    await ok(t, ['node', 'list', '@compute', '--fields', 'name,BOOTIF.ipaddress,comment', '--sort', '-name']),
    'name     BOOTIF.ipaddress  comment\nnode002  10.141.0.2        x y\nnode001  10.141.0.1        x y\n'
  )
  t.equal(
    await ok(t, ['node', 'list', 'node001', '-o', 'csv', '--fields=name,comment']),
    'name,comment\r\nnode001,x y\r\n'
  )
  const json = await ok(t, ['node', 'show', 'node[001-002]', '-o', 'json'])
  t.same(Object.keys(JSON.parse(json).config.node), ['node001', 'node002'])
  t.match(await ok(t, ['node', 'status', '@all', '--fields', 'name,state']), /^name +state\nnode001 +-\n/)
  t.match(await ok(t, ['node', 'why', '@all']), /^node001: .*never.*\nnode002: /)
  t.match(await ok(t, ['node', 'boots', 'node001']), 'node node001: no boot was seen\n')
  await c.get('/boot/search/mac/52:54:00:00:00:01', { token: null, source: '10.141.0.1' })
  t.match(
    await ok(t, ['node', 'boots', 'node001']),
    /^node node001: boot of 20.* from 10\.141\.0\.1\n {2}20.*disk {2}from/
  )
  await ok(t, ['node', 'add', 'spare', 'group=compute'])
  t.match(await ok(t, ['node', 'why', 'spare']), /^spare: has no MAC, /, 'the name stands there once')
  await ok(t, ['node', 'rm', 'spare'])
})

// rules 14.7
t.test('what goes with a group, and what cannot boot, is told beside a change', async t => {
  await ok(t, ['network', 'add', 'old', 'network=10.151.0.0/16'])
  await ok(t, ['network', 'add', 'new', 'network=10.152.0.0/16'])
  await ok(t, ['osimage', 'add', 'bare'])
  await ok(t, ['group', 'add', 'from', 'BOOTIF.network=old', 'BMC.network=old', 'netboot=no'])
  await ok(t, ['group', 'add', 'to', 'BOOTIF.network=new', 'ib0.network=old', 'osimage=bare'])
  for (const i of [1, 2, 3]) await ok(t, ['node', 'add', `move${i}`, 'group=from'])
  t.equal(
    await ok(t, ['node', 'set', 'move1', 'group=to']),
    `node move1 updated
With group to, these changed too:
  osimage: - -> bare
  netboot: no -> yes
  BOOTIF.network: old -> new
  BOOTIF.ipaddress: 10.151.0.1 -> 10.152.0.1
  interface BMC is gone: network old, ipaddress 10.151.0.2
  interface ib0 is new: network old, ipaddress 10.151.0.7
warning: node move1 cannot boot now: OS image bare has no kernel (kernelfile); type: svcctl osimage pack bare
`
  )
  t.match(
    await ok(t, ['node', 'set', '@from', 'group=to', 'netboot=yes']),
    /^2 nodes updated\nWith group to, these changed too:\n {2}osimage: - -> bare\n {2}BOOTIF.network: old -> new\n {2}BOOTIF.ipaddress: another value on each node\n {2}interface BMC is gone\n {2}interface ib0 is new\nwarning: nodes move\[2-3\] cannot boot now: OS image bare /
  )
  t.match(
    await ok(t, ['node', 'set', 'move1', 'group=']),
    /^node move1 updated\nWithout a group, these changed too:\n/
  )
  t.match(
    await ok(t, ['group', 'set', 'to', 'provision_method=preseed']),
    /cannot boot now: OS image bare has no kernel \(kernelfile\): svcctl osimage set bare kernelfile=FILE\n$/
  )
  await ok(t, ['group', 'set', 'to', 'provision_method='])
  t.match(
    await ok(t, ['osimage', 'set', 'bare', 'kernelfile=none']),
    /^OS image bare updated\nwarning: nodes move\[2-3\] cannot boot now: the kernel .*, none, is missing\n$/
  )
  t.match(
    await ok(t, ['group', 'set', 'to', 'osimage=']),
    /\nwarning: nodes move\[2-3\] cannot boot now: they have no OS image\n$/
  )
  t.match(
    await ok(t, ['node', 'add', 'move4']),
    /^node move4 created\nwarning: node move4 cannot boot now: node move4 has no OS image/
  )
  await ok(t, ['node', 'rm', 'move4'])
  t.equal(await ok(t, ['group', 'set', 'to', 'comment=x']), 'group to updated\n', 'nodes do not boot by it')
  t.equal(await ok(t, ['node', 'set', 'move2', 'netboot=no']), 'node move2 updated\n')
  t.equal(await ok(t, ['osimage', 'set', 'bare', 'kernelfile=']), 'OS image bare updated\n', 'no node has it')
  t.same(JSON.parse(await ok(t, ['node', 'set', 'move3', 'group=from', '-o', 'json'])), {
    message: 'node move3 updated'
  })
  await ok(t, ['node', 'rm', 'move[1-3]', '--yes'])
  for (const [type, name] of [
    ['group', 'from'],
    ['group', 'to'],
    ['osimage', 'bare'],
    ['network', 'old'],
    ['network', 'new']
  ] as const)
    await ok(t, [type, 'rm', name])
})

// rules 14.7
t.test('what goes with a group: what is there after the change, and no dry run', async t => {
  await ok(t, ['network', 'add', 'rack', 'network=10.153.0.0/16'])
  await ok(t, ['file', 'add', 'rackfile', 'path=/etc/rack', 'template=x'])
  const script = join(tree, 'files', 'long.sh')
  writeFileSync(script, '# a long script\n'.repeat(100))
  await ok(t, ['group', 'add', 'left', 'variables.network=seven', 'variables.rack=1', 'BOOTIF.network=rack'])
  const right = ['variables.rack=2', 'BOOTIF.network=rack', 'ib0.network=rack', 'files=rackfile']
  await ok(t, ['group', 'add', 'right', ...right, `postscript=@${script}`])
  for (let i = 1; i <= 22; i++) await c.post(`/config/node/go${i}`, { group: 'left' })
  const asked: string[] = []
  const more = await forwarder(t, async (method, path) => {
    asked.push(`${method} ${path}`)
    // The next address is taken by somebody else right before the change.
    if (method === 'POST') await c.post('/config/node/thief', { group: 'right' })
  })
  const set = async (...words: string[]) => {
    const { code, stdout, stderr } = await here(['node', 'set', ...words], { more })
    t.same([code, stderr], [0, ''])
    return stdout.replace(/^warning: .*\n/m, '')
  }
  const told = await set('go1', 'newhostname=gone1', 'group=right', 'netboot=yes', 'variables.mine=1')
  const { config } = (await c.get('/config/node/gone1')).body
  const address = config.node.gone1.interfaces.find(
    ({ interface: name }: { interface: string }) => name === 'ib0'
  ).ipaddress
  t.equal(
    told,
    `node go1 updated
With group right, these changed too:
  postscript: another value
  files: - -> rackfile
  variables.network: seven -> -
  variables.rack: 1 -> 2
  interface ib0 is new: network rack, ipaddress ${address}
`
  )
  t.match(
    await set('go[2-22]', 'group=right', 'variables.rack=3', 'ib0.options=mtu=9000'),
    /^21 nodes updated\nWith group right, these changed too \(on the first 20 of 21 nodes\):\n {2}postscript: another value\n {2}files: - -> rackfile\n {2}variables.network: seven -> -\n {2}interface ib0 is new\n$/
  )
  t.same(
    asked.filter(path => path.startsWith('POST ')),
    ['POST /config/node/go1', 'POST /config/node/_set']
  )
  t.notMatch(asked.join('\n'), /dryrun/)
  const foretold = await ok(t, ['node', 'set', 'go2', 'group=left', '--dryrun'])
  t.match(foretold, /^node go2 would be changed:$/m)
  t.match(foretold, /^ {2}group: right -> left$/m)
  t.match(foretold, /^ {2}files: rackfile -> -$/m)
  t.match(foretold, /^ {2}variables.network: - -> seven$/m)
  t.match(foretold, /^ {2}postscript:/m)
  t.notMatch(foretold, /_kerneloptions|osimage\./)
  await ok(t, ['node', 'rm', 'gone1,thief,go[2-22]', '--yes'])
  for (const [type, name] of [
    ['group', 'left'],
    ['group', 'right'],
    ['file', 'rackfile'],
    ['network', 'rack']
  ] as const)
    await ok(t, [type, 'rm', name])
})

t.test('a dry run tells and changes nothing', async t => {
  const before = (await c.get('/config/node')).text
  const told = await ok(t, ['node', 'set', 'node[001-002]', 'netboot=yes', 'comment=', '--dryrun'])
  t.match(
    told,
    /^dry run, nothing was changed: 2 nodes would be changed; the disks of 2 nodes would be written at the next boot from the network: node\[001-002\]\nnodes node\[001-002\] would be changed:\n {2}comment: x y -> -\n/
  )
  t.match(told, /^ {2}netboot: - -> yes$/m)
  const { changes } = JSON.parse(await ok(t, ['node', 'rm', '@all', '--dryrun', '-o', 'json']))
  t.same(
    changes.map(({ name, action }: { name: string; action: string }) => `${action} ${name}`),
    ['delete node001', 'delete node002']
  )
  const dry = async (...words: string[]) =>
    (await ok(t, [...words, '--dryrun'])).replace('dry run, nothing was changed: ', '').split('\n')
  const added = await dry('node', 'add', 'node003', 'group=compute')
  t.same(added.slice(0, 3), ['1 node would be created', 'node node003 would be created:', '  group: compute'])
  await c.post('/config/secrets/node/node001', [{ name: 'k', path: '/k', content: 'UFJJVkFURQ==' }])
  const renamed = await dry('node', 'rename', 'node001', 'node009')
  t.same(renamed, ['1 node would be renamed', 'node node001 would be renamed to node009', ''])
  await c.get('/config/secrets/node/node001/k/_delete')
  const gone = await dry('node', 'rm', 'node001')
  t.same(gone.slice(0, 3), ['1 node would be deleted', 'node node001 would be deleted:', '  group: compute'])
  t.same(await dry('cluster', 'set', 'ntp_server=10.141.0.9'), [
    'the settings of the cluster would be changed',
    'the settings of the cluster would be changed:',
    '  settings: - -> {"ntp_server":{"value":"10.141.0.9","ini":""}}',
    ''
  ])
  t.equal((await c.get('/config/node')).text, before)
})

// rules 3.17
t.test('what may be a slip is told beside the change', async t => {
  const told = await here(['group', 'set', 'compute', 'BOOTIF.options=vlna=5'])
  t.match(told, {
    ...{ code: 0, stdout: /updated/ },
    stderr: 'warning: interface BOOTIF: its option "vlna=5" is not known (did you mean "vlan"?)\n'
  })
  t.match(await here(['group', 'set', 'compute', 'BOOTIF.options=']), { code: 0, stderr: '' })
})

// rules 6.14
t.test('nodes are installed again after a question, or with --yes', async t => {
  const netboots = async () =>
    Object.values<{ netboot: boolean }>((await c.get('/config/node/@all')).body.config.node).map(
      ({ netboot }) => netboot
    )
  await c.post('/config/node/_set', { nodes: '@all', fields: { netboot: false } })
  const no = terminal(['node', 'reinstall', '@all'])
  await no.says('Have the next boot write to the disks of 2 nodes: node[001-002]? [y/N] ')
  no.type('n\r')
  t.match(await no.ended, { code: 1, stdout: /nothing was changed/ })
  t.same(await netboots(), [false, false])
  t.match(
    await ok(t, ['node', 'reinstall', 'node001']),
    /^1 node updated\nit is installed at its next boot: svcctl node power 'node001' boot\n$/
  )
  t.same(await netboots(), [true, false])
  t.match(await ok(t, ['node', 'reinstall', '@all', '--dryrun']), /node002/)
  t.same(await netboots(), [true, false])
  await ok(t, ['node', 'reinstall', '@all', '--yes'])
  t.same(await netboots(), [true, true])
  t.match(
    await ok(t, ['node', 'reinstall', '@all', '--dryrun']),
    /partscript, a disk layout or localinstall, its next boot .* writes/
  )
})

// rules 6.15
t.test('nodes boot once for a rescue, by one command, and not by another', async t => {
  const rescues = async () =>
    Object.values<{ rescue: string | null }>((await c.get('/config/node/@all')).body.config.node).map(
      ({ rescue }) => rescue
    )
  for (const name of ['tools', 'other'])
    await c.post(`/config/osimage/${name}`, { kernelfile: 'k', initrdfile: 'i', imagefile: `${name}.tar` })
  const none = await here(['node', 'rescue', 'node001'])
  t.match(none, { code: 1, stderr: /node001 has no OS image: name one, --image IMAGE/ })
  t.match(
    await ok(t, ['node', 'rescue', 'node001', '--image', 'tools', '--dryrun']),
    /1 node would be changed/
  )
  t.same(await rescues(), [null, null])
  await c.post('/config/node/node001', { netboot: false })
  t.equal(
    await ok(t, ['node', 'rescue', 'node001', '--image', 'tools']),
    `1 node updated
at its next boot from the network: svcctl node chassis 'node001' netboot, svcctl node power 'node001' boot
the way back before that: svcctl node rescue 'node001' --end
`
  )
  t.same(await rescues(), ['tools', null])
  await ok(t, ['node', 'rescue', 'node001', '--end'])
  t.same(await rescues(), [null, null])
  await c.post('/config/node/_set', { nodes: '@all', fields: { osimage: 'tools' } })
  await c.post('/config/node/node001', { partscript: 'ZXhpdA==' })
  t.match(
    await ok(t, ['node', 'rescue', '@all']),
    /the boot after that one writes to the disk; .* '@all' netboot=no/
  )
  t.same(await rescues(), ['tools', 'tools'], 'their own image')
  await ok(t, ['node', 'rescue', '@all', '--end'])
  await c.post('/config/node/node002', { osimage: 'other' })
  const several = await here(['node', 'rescue', '@all'])
  t.match(several, { code: 1, stderr: /@all has the OS images tools, other: name one/ })
  const both = await here(['node', 'rescue', '@all', '--end', '--image', 'tools'])
  t.match(both, { code: 2, stderr: /--end takes no --image/ })
  t.match(await here(['node', 'rescue', 'nothere', '--image', 'tools']), { code: 1, stderr: /nothere/ })
  t.match(await here(['node', 'rescue', 'node001', '--image', 'nothing']), { code: 1, stderr: /nothing/ })
  await c.post('/config/node/_set', { nodes: '@all', fields: { osimage: null, netboot: true } })
})

t.test('many are deleted after a question, or with --yes', async t => {
  for (const i of [7, 8, 9]) await c.post(`/config/node/old${i}`, {})
  const unasked = await here(['node', 'rm', 'old[7-9]'])
  t.match(unasked, { code: 2, stderr: /no terminal to ask on about 3 nodes, use --yes/ })
  const no = await here(['node', 'rm', 'old[7-9]'], { types: 'n' })
  t.ok(no.stderr.startsWith('Delete 3 nodes: old[7-9]? [y/N] '), no.stderr)
  t.match(no, { code: 1, stdout: '', stderr: /nothing was deleted/ })
  t.equal((await c.get('/config/node/old8')).status, 200)
  const yes = terminal(['node', 'rm', 'old[7-8]'])
  await yes.says('Delete 2 nodes')
  yes.type('y\r')
  t.match(await yes.ended, { code: 0, stdout: /2 nodes deleted/ })
  t.equal(await ok(t, ['node', 'rm', 'old[9]', '--yes']), '1 node deleted\n')
  t.same(Object.keys((await c.get('/config/node')).body.config.node), ['node001', 'node002'])
})

// rules 12.9
t.test('a set that folds badly is changed and deleted in one step', async t => {
  const names = Array.from({ length: 1200 }, (_, i) => `unit${i}-${(i * 7919) % 9973}-x`)
  const table = ['name,group', ...names.map(name => `${name},spares`), ''].join('\n')
  await c.post('/config/group/spares', {})
  t.match(await c.post('/config/node?format=csv', table), { status: 200 })
  const set = names.join(',')
  t.equal(await ok(t, ['node', 'set', set, 'comment=old']), '1200 nodes updated\n')
  t.match(
    await ok(t, ['node', 'rm', set, '--dryrun']),
    /^dry run, nothing was changed: 1200 nodes would be deleted\n/
  )
  const long = await here(['node', 'list', set])
  t.match(long, { code: 2, stdout: '', stderr: /names too many for one question: .* such as @GROUP/ })
  // What is asked about are the nodes themselves, with no short notation.
  const unfolded = await here(['node', 'rm', '@spares'], { types: 'n' })
  t.match(unfolded, { code: 1, stdout: '', stderr: /^Delete 1200 nodes: unit0-0-x,unit1-7919-x/ })
  t.match(await here(['node', 'rm', `${set},nobody`], { types: 'y' }), {
    code: 1,
    stderr: /there is no node nobody/
  })
  t.match(await here(['node', 'rm', set], { types: 'y' }), { code: 0, stdout: '1200 nodes deleted\n' })
  await c.post('/config/group/spares/_delete', {})
  t.same(Object.keys((await c.get('/config/node')).body.config.node), ['node001', 'node002'])
})

t.test('the power of nodes: what came of each, with a bar on a terminal', async t => {
  await RedfishService.start(t, '127.7.0.1', port)
  await bmcCluster(c, {
    username: 'admin',
    password: 'secret',
    protocol: 'redfish',
    verify_certificate: false
  })
  await addNode(c, 'n1', '127.7.0.1')
  t.equal(await ok(t, ['node', 'power', 'n1', 'status']), 'n1: off\n')
  const { code, stdout } = await terminal(['node', 'power', 'n1', 'on']).ended
  t.equal(code, 0)
  t.match(stdout, /\r\[ {30}\] 0 nodes/)
  t.match(stdout, /\r\u001b\[K\u001b\[1mn1\u001b\[0m: /)
  const mixed = await here(['node', 'power', 'n1,node001', 'status', '-o', 'json'])
  t.match(mixed, { code: 1, stderr: 'svcctl: power status: 1 of 2 nodes failed\n' })
  t.match(JSON.parse(mixed.stdout), {
    n1: { result: 'ok', message: 'on' },
    node001: { result: 'failed', message: /BMC/ }
  })
  t.match(await here(['node', 'power', '@stale:yes&@compute', 'status']), {
    code: 1,
    stderr: 'svcctl: @stale:yes&@compute names no node: nothing was done\n'
  })
  t.match(await here(['node', 'power', 'nobody', 'on']), { code: 1, stdout: '', stderr: /nobody/ })
})

// rules 14.5
t.test('a node set loses its power, or its logs, after a question or with --yes', async t => {
  const bmc = await RedfishService.start(t, '127.7.0.2', port)
  await addNode(c, 'n2', '127.7.0.2')
  const actions: [action: string[], question: string][] = [
    [['power', 'off'], 'Switch off 1 node: n2? [y/N] '],
    [['power', 'cycle'], 'Switch off and on again 1 node: n2? [y/N] '],
    [['power', 'reset'], 'Reset 1 node: n2? [y/N] '],
    [['sel', 'clear'], 'Clear the event logs of 1 node: n2? [y/N] ']
  ]
  for (const [[part = '', action = ''], question] of actions) {
    const words = ['node', part, 'n[2]', action]
    t.match(await here(words), { code: 2, stdout: '', stderr: /nothing was done: .* 1 node, use --yes\n/ })
    t.match(await here(words, { types: 'n' }), {
      code: 1,
      stdout: '',
      stderr: `${question}svcctl: nothing was done\n`
    })
  }
  t.same(bmc.resets, [])
  t.match(await here(['node', 'power', '@none!n2', 'off'], { types: 'y' }), {
    code: 1,
    stderr: /no group none/
  })
  t.equal(await ok(t, ['node', 'power', 'n2', 'on']), 'n2: power on\n')
  t.match(await here(['node', 'power', 'n[2]', 'off'], { types: 'y' }), {
    code: 0,
    stdout: 'n2: power off\n'
  })
  t.equal(await ok(t, ['node', 'power', 'n[2]', 'on']), 'n2: power on\n')
  t.equal(await ok(t, ['node', 'power', 'n[2]', 'off', '--yes']), 'n2: power off\n')
  t.equal(await ok(t, ['node', 'sel', 'n[2]', 'clear', '-y']), 'n2: sel clear\n')
  t.equal(bmc.resets.length, 4)
})

t.test('the same failure of many nodes is told once, whatever they are called', async t => {
  const many = await here(['node', 'power', 'node[001-002]', 'status'])
  t.match(many, { code: 1, stdout: /^node\[001-002\]: failed: the node has no interface BMC: / })
  const typed = (node: string) => ({
    failed: true,
    message: `node ${node}: type svcctl node set ${node} a=b`
  })
  t.same(
    [...outcomeLines(new Map([...'ab'].map(node => [`n${node}`, typed(`n${node}`)])), (_, text) => text)],
    ['na,nb: failed: the node: type svcctl node set NODE a=b'],
    'what is typed has no words for a name'
  )
  const alone = await here(['node', 'power', 'node001', 'status'])
  t.match(alone, { code: 1, stdout: /^node001: failed: node node001 has no interface BMC: / })
})

// rules 14.6
t.test('an image is packed and tagged', async t => {
  makeTree(join(c.directory, 'images', 'small'))
  await ok(t, ['osimage', 'add', 'small'])
  t.equal(
    await ok(t, ['osimage', 'tag', 'small', 'early']),
    'OS image small tagged early; warning: it is not packed, so the tag holds no image: type svcctl osimage pack small, and tag it again\n'
  )
  await ok(t, ['osimage', 'untag', 'small', 'early'])
  const packed = await here(['osimage', 'pack', 'small'], { tty: true })
  t.match(packed, { code: 0, stdout: /OS image small packed/, stderr: /\r\[ *#* *\] / })
  t.equal(await ok(t, ['osimage', 'tag', 'small', 'v1']), 'OS image small tagged v1\n')
  t.match(
    await ok(t, ['osimage', 'tags', 'small', '--fields', 'name,osimage']),
    /^name +osimage\nv1 +small\n$/
  )
  t.match(
    await ok(t, ['osimage', 'untag', 'small', 'v1', '--dryrun']),
    /^dry run.*\nOS image tag small:v1 would be deleted:\n/
  )
  await ok(t, ['osimage', 'untag', 'small', 'v1'])
  t.same((await c.get('/config/osimagetag')).body.config.osimagetag, {})
  await ok(t, ['osimage', 'clone', 'small', 'large'])
  rmSync(join(c.directory, 'images', 'large'), { recursive: true })
  t.match(await here(['osimage', 'pack', 'large']), { code: 1, stdout: '', stderr: /large/ })
  mkdirSync(join(c.directory, 'images', 'large', 'sbin'), { recursive: true })
  writeFileSync(join(c.directory, 'images', 'large', 'sbin', 'init'), '')
  t.equal(
    await ok(t, ['osimage', 'pack', 'large']),
    'OS image large packed; warning: it has no kernel below /boot: its nodes cannot boot from the network; ' +
      'install a kernel (linux-image-amd64) in it, and pack it again\n'
  )
  // The directory that svcd made goes with the image, the other one stays.
  const place = join(c.directory, 'images', 'large')
  const remove = ['osimage', 'rm', 'large']
  t.match(await here(remove), {
    code: 2,
    stderr: `svcctl: nothing was deleted: its directory ${place} would be removed, and there is no terminal to ask on; use --yes`
  })
  t.ok(
    (await ok(t, [...remove, '--dryrun'])).startsWith(
      `dry run, nothing was changed: 1 OS image would be deleted; the directory ${place} would be removed\n`
    )
  )
  const question = `Delete OS image large and its directory ${place}? [y/N] `
  const no = await here(remove, { types: 'n' })
  t.match(no, { code: 1, stderr: /nothing was deleted/ })
  t.ok(no.stderr.includes(question), no.stderr)
  t.match(await here(remove, { types: 'y' }), {
    code: 0,
    stdout: `osimage large deleted; its directory ${place} is removed\n`
  })
  for (let i = 0; existsSync(place) && i < 500; i++) await new Promise(resolve => setTimeout(resolve, 20))
  t.notOk(existsSync(place))
  t.equal(await ok(t, ['osimage', 'rm', 'small']), 'osimage small deleted\n')
  t.ok(existsSync(join(c.directory, 'images', 'small')))
})

// rules 14.6
t.test('secrets of nodes and groups', async t => {
  const key = join(tree, 'files', 'key')
  writeFileSync(key, 'of all\n')
  await ok(t, ['group', 'setsecret', 'compute', 'host', `content=@${key}`, 'path=/etc/key'])
  await ok(t, ['node', 'setsecret', 'node001', 'own', 'content=-', 'path=/etc/own'], 'mine\n')
  t.match(
    await ok(t, ['node', 'secrets', 'node001']),
    'node node001  own  /etc/own\ngroup compute  host  /etc/key\n'
  )
  t.equal(await ok(t, ['group', 'secret', 'compute', 'host']), 'of all\n')
  await ok(t, ['node', 'setsecret', 'node001', 'own', 'path=/etc/other', 'newsecretname=mine'])
  t.equal(await ok(t, ['node', 'secret', 'node001', 'mine']), 'mine\n')
  t.match(await here(['node', 'setsecret', 'node001', 'mine', 'content=-']), {
    code: 2,
    stderr: /gives no text/
  })
  writeFileSync(key, Buffer.from([0xff, 0]))
  await ok(t, ['node', 'setsecret', 'node001', 'mine', `content=@${key}`])
  t.match(await here(['node', 'secret', 'node001', 'mine']), {
    code: 1,
    stdout: '',
    stderr: /is no text: -o json/
  })
  await ok(t, ['node', 'rmsecret', 'node001', 'mine'])
  await ok(t, ['group', 'rmsecret', 'compute', 'host'])
  t.same((await c.get('/config/secrets')).body.config.secrets, { node: {}, group: {} })
})

// rules 14.6
t.test('the settings of the cluster', async t => {
  await ok(t, ['cluster', 'set', 'technical_contacts=root@hpc', 'variables.site=delft', 'debug=no'])
  const shown = await ok(t, ['cluster', 'show'])
  t.match(shown, /^technical_contacts +root@hpc$/m)
  t.match(shown, /^variables\n {4}site = delft$/m)
  t.match(
    await ok(t, ['cluster', 'set', 'variables.site=', '--dryrun']),
    /^the settings of the cluster would be changed:\n/m
  )
  await ok(t, ['cluster', 'set', 'variables.site=', 'technical_contacts='])
  t.match((await c.get('/config/cluster')).body.config.cluster, {
    technical_contacts: '',
    variables: undefined
  })
  t.match(await here(['cluster', 'set', 'name=x']), { code: 2, stderr: /a cluster has no field name/ })
})

// rules 14.6
t.test('a table of nodes is imported after a question, or with --yes', async t => {
  const table = join(tree, 'files', 'nodes.csv')
  writeFileSync(table, 'name,comment\nnode001,of a table\nnode003,new\n')
  const before = (await c.get('/config/node')).text
  t.match(
    await ok(t, ['import', table, '--dryrun']),
    /^dry run, nothing was changed: 1 node would be changed, 1 node would be created\n/
  )
  t.match(await here(['import', table]), {
    code: 2,
    stdout: '',
    stderr: /nothing was imported: .* use --yes/
  })
  t.match(await here(['import', table], { types: 'n' }), {
    code: 1,
    stderr: /Import this\?.*nothing was imported/s
  })
  t.equal((await c.get('/config/node')).text, before)
  t.match(await here(['import', table], { types: 'y' }), { code: 0, stdout: '1 node created, 1 changed\n' })
  t.equal(await ok(t, ['import', table]), 'nothing differs\n')
  t.equal(
    await ok(t, ['import', '-', '--yes'], 'name,comment\nnode001,x y\n'),
    '0 nodes created, 1 changed\n'
  )
  t.match(await here(['import', table, '--yes', '--sort', 'name']), {
    code: 2,
    stderr: /import takes no --sort/
  })
  writeFileSync(table, 'name,group\nnode004,nowhere\n')
  t.match(await here(['import', table, '--yes']), { code: 1, stderr: /line 2: .*nowhere does not exist/ })
  writeFileSync(table, 'name,macaddr,service\nnode001,zz,\nnode002,,maybe\n')
  t.match(await here(['import', table, '--yes']), {
    code: 1,
    stderr: /nothing was changed:\n {2}line 2, column 2 .*\n {2}line 3, column 3 .* not "maybe"\n$/
  })
  await ok(t, ['node', 'rm', 'node003'])
})

// rules 14.3
t.test('exit codes: refused, wrong usage, no controller', async t => {
  const refused: [string[], RegExp][] = [
    [['node', 'add', 'node001'], /node node001 exists already; type: svcctl node set$/m],
    [['node', 'set', 'node009', 'comment=x'], /node node009 does not exist; type: svcctl node add$/m],
    [
      ['node', 'set', 'node[001-009]', 'comment=x'],
      /there is no node node\[003-009\]; a set cannot create nodes; use a table: svcctl import FILE/
    ],
    [['node', 'show', '..'], /./],
    [['node', 'set', 'node001', 'variables.__proto__=x'], /__proto__/],
    [['group', 'rm', 'compute'], /compute/],
    [['node', 'list', '--fields', 'nothing'], /a node shows no field "nothing"/]
  ]
  const wrong: [string[], RegExp][] = [
    [[], /which command\?/],
    [['nodde'], /unknown command nodde \(did you mean "node"\?\): /],
    [['constructor', 'list'], /unknown command constructor/],
    [['node', 'toString'], /unknown verb toString: /],
    [['node', 'staus'], /unknown verb staus \(did you mean "status"\?\): /],
    [['node', 'rm', 'n1', 'n2'], /usage: svcctl node rm NAME; several nodes are one word: n1,n2\n/],
    [
      ['node', 'power', 'n1', 'n2', 'n3', 'on'],
      /usage: svcctl node power SET .*; several nodes are one word: n1,n2,n3\n/
    ],
    [['node', 'set', 'n1', 'n2', 'comment=x'], /; several nodes are one word: n1,n2\n/],
    [['node', 'rename', 'n1', 'n2', 'n3'], /usage: svcctl node rename NAME NEW\n/],
    [['group', 'power', 'x', 'on'], /unknown verb power/],
    [['node', 'add', 'node[011-013]'], /add creates one node, .* from a table: svcctl import FILE/],
    [['node', 'set', 'node001', 'foo=1'], /a node has no field foo; it has group, /],
    [['node', 'set', 'node001', 'netboot=maybe'], /netboot must be yes or no, not maybe/],
    [['node', 'set', 'node001', 'comment=@/nowhere'], /\/nowhere: there is no such file/],
    [['node', 'set', 'node001', 'comment=-', 'vendor=-'], /vendor=-: one field alone can be read/],
    [['node', 'set', 'node001', 'comment=a', 'comment=b'], /comment is given twice/],
    [['group', 'set', 'compute', 'BOOTIF.ipaddress=10.1.1.1'], /has no field BOOTIF\.ipaddress/],
    [
      ['node', 'power', 'node001', 'explode'],
      /power takes status, on, off, soft, cycle, reset, boot, not explode/
    ],
    [['node', 'power', 'node001', 'on', '--sort', 'name'], /node power takes no --sort/],
    [['node', 'list', '-o', 'xml'], /-o must be one of text, json, csv/],
    [['node', 'list', '--url', 'controller:7050'], /must look like http:/]
  ]
  for (const [code, cases] of [
    [1, refused],
    [2, wrong]
  ] as const)
    for (const [i, [args, message]] of cases.entries()) {
      // One of each by the program.
      const ended = await (i === 0 ? run(args) : here(args, { input: 'x' }))
      t.match(ended, { code, stdout: '', stderr: message }, args.join(' '))
      t.notMatch(ended.stderr, /\n {4}at /)
    }
  const elsewhere = `http://[::ffff:127.0.0.1]:${await freePort()}`
  const clear = await here(['login', '--stdin', '--url', elsewhere], { input: 'x\n' })
  t.match(clear, { code: 3, stdout: '', stderr: /in the clear, use an https URL\n.*no controller at/ })
  const silent = `http://127.0.0.1:${await freePort()}`
  const none = await run(['login', '--stdin', '--url', silent], 'x\n')
  t.match(none, { code: 3, stdout: '', stderr: `svcctl: no controller at ${silent}: connect ECONNREFUSED` })
  t.match(
    none.stderr,
    /; does svcd run there\? On the controller, type: systemctl status svcd \(in a checkout: make run\)\n/
  )
})

// rules 14.1
t.test('a token that others could have read, or that has expired, is not used', async t => {
  chmodSync(tokenFile, 0o640)
  t.match(await here(['node', 'list']), { code: 1, stdout: '', stderr: /others may have read.*svcctl login/ })
  chmodSync(tokenFile, 0o600)
  const token = readFileSync(tokenFile)
  rmSync(tokenFile)
  writeFileSync(join(tree, 'files', 'token'), token, { mode: 0o600 })
  symlinkSync(join(tree, 'files', 'token'), tokenFile)
  t.match(await here(['node', 'list']), { code: 1, stdout: '', stderr: /the token cannot be read/ })
  rmSync(tokenFile)
  writeFileSync(tokenFile, token, { mode: 0o600 })
  c.clockMs = 2 * 3_600_000
  t.match(await here(['node', 'list']), {
    code: 1,
    stdout: '',
    stderr: 'svcctl: your login has ended; type: svcctl login admin\n'
  })
  const ended = { code: 1, stdout: '', stderr: /your login has ended/ }
  t.match(await here(['token']), ended, 'no program gets a token that has ended')
  c.clockMs = 0
  t.equal(await ok(t, ['token']), token.toString(), 'for programs that ask over http')
  t.match(await here(['token', 'admin']), {
    code: 2,
    stderr: /unknown verb admin: token has list, create, revoke/
  })
  await ok(t, ['logout'])
  t.same(readdirSync(join(cache, 'svcd')), [])
})

const hostile = '\u001b]0;owned\u0007\u009b2Jx\u202e\u061c\u200b\u{e0041}evil'

/** A server that answers what the test says, and what it was asked. */
async function stranger(t: Test, answer: (path: string, response: ServerResponse) => void) {
  const server = createServer((request, response) => answer(request.url ?? '', response))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  writeFileSync(join(cache, 'svcd', `token-${encodeURIComponent(at)}`), 'x\n', { mode: 0o600 })
  return { SVCD_URL: at }
}

/** The controller behind a server that calls `passes` before it passes a request on. */
async function forwarder(t: Test, passes: (method: string, path: string) => Promise<void>) {
  const server = createServer(async (incoming, response) => {
    const { method = '', url: path = '', headers } = incoming
    await passes(method, path)
    const outgoing = request(`${url}${path}`, { method, headers }, answer => {
      response.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(response)
    })
    incoming.pipe(outgoing)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const token = join(cache, 'svcd', `token-${encodeURIComponent(at)}`)
  copyFileSync(tokenFile, token)
  t.teardown(() => rmSync(token))
  return { SVCD_URL: at }
}

// rules 9.15
t.test(
  'where controllers share the objects, it says which one removes the directory of an image',
  async t => {
    const more = await stranger(t, (path, response) => {
      const told = { message: '', directories: ['/images/large'], controllers: ['c2'] }
      if (path.includes('dryrun=yes')) response.end(JSON.stringify(told))
      else response.writeHead(204).end()
    })
    t.same(await here(['osimage', 'rm', 'large', '--yes'], { more }), {
      ...{ code: 0, stderr: '' },
      stdout: 'osimage large deleted; its directory /images/large on controller c2 is removed\n'
    })
  }
)

// rules 14.4
t.test('what a server says does not steer the terminal', async t => {
  const json = (response: ServerResponse, status: number, body: object) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  const at = await stranger(t, (path, response) => {
    if (path.includes('format=')) {
      const type = path.includes('json')
        ? 'application/json'
        : path.includes('csv')
          ? 'text/csv'
          : 'text/plain'
      response.writeHead(200, { 'content-type': type }).end(`name\n${hostile}\r\n`)
    } else if (path.startsWith('/control'))
      json(response, 200, { request_id: 'x', state: 'done', control: { failed: { [hostile]: hostile } } })
    else if (path.includes('dryrun'))
      json(response, 200, {
        message: hostile,
        changes: [
          {
            type: hostile,
            name: hostile,
            action: hostile,
            fields: [{ field: hostile, before: hostile, after: hostile }]
          }
        ],
        files: [
          { service: hostile, path: hostile, diff: hostile },
          { service: hostile, problem: hostile }
        ]
      })
    else if (path.includes('_'))
      json(response, 200, {
        monitor: {
          why: { a: { verdict: hostile } },
          boots: {
            a: { boots: [{ began: hostile, from: hostile, steps: [{ step: hostile, about: hostile }] }] }
          }
        }
      })
    else if (path === '/config/node/bad') json(response, 400, { message: hostile })
    else
      json(response, 200, {
        config: {
          node: {
            a: {
              name: hostile,
              [hostile]: hostile,
              variables: { [hostile]: hostile },
              partscript: Buffer.from(`a\n${hostile}`).toString('base64'),
              interfaces: [{ interface: hostile, ipaddress: hostile }]
            }
          }
        },
        message: hostile
      })
  })
  const commands = [
    ['node', 'list'],
    ['node', 'list', '-o', 'json'],
    ['node', 'list', '-o', 'csv'],
    ['node', 'show', 'a'],
    ['node', 'show', 'bad'],
    ['node', 'set', 'a', 'comment=x'],
    ['node', 'set', 'a', 'comment=x', '--dryrun'],
    ['node', 'why', 'a'],
    ['node', 'boots', 'a'],
    ['node', 'power', 'a', 'on'],
    ['node', 'power', 'a', 'on', '-o', 'csv']
  ]
  for (const [i, args] of commands.entries()) {
    // One by the program, on a terminal of its own.
    const ended = await (i === 0
      ? terminal(args, { ...at, NO_COLOR: '1' }).ended
      : here(args, { tty: true, more: { ...at, NO_COLOR: '1' } }))
    const shown = `${ended.stdout}${ended.stderr}`
    t.match(shown, /evil/, args.join(' '))
    t.notMatch(
      shown.replaceAll('\r\n', '\n').replace(/\r\[[ #]{30}\] \d nodes|\r\u001b\[K/g, ''),
      /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]|\p{Cf}/u,
      args.join(' ')
    )
  }
  const piped = await here(['node', 'list', '-o', 'csv'], { more: at })
  t.equal(piped.stdout, `name\n${hostile}\r\n`, 'a program reads CSV as it was sent')
})

t.test('what is no svcd, breaks off or sends elsewhere is no controller', async t => {
  const at = await stranger(t, (path, response) => {
    if (path.startsWith('/config/node/cut')) {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 }).write('{')
      setTimeout(() => response.destroy(), 50)
    } else if (path.startsWith('/config/group'))
      response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()
    else response.writeHead(200, { 'content-type': 'text/html' }).end('<html>')
  })
  await Promise.all(
    [
      ['node', 'list'],
      ['node', 'show', 'x'],
      ['node', 'show', 'cut'],
      ['group', 'list']
    ].map(async args =>
      t.match(
        await here(args, { more: at }),
        { code: 3, stdout: '', stderr: /^svcctl: no (?:svcd|controller) at / },
        args.join(' ')
      )
    )
  )
})

t.test('https: the certificate is checked against the CA that is named', async t => {
  const secure = `https://127.0.0.1:${c.daemon.tlsPort}`
  const login = ['login', '--stdin', '--url', secure]
  t.match(await here(login, { input: password }), { code: 3, stderr: /certificate.*--cacert FILE/ })
  const byName = ['login', '--stdin', '--url', secure.replace('127.0.0.1', 'localhost')]
  const otherName = await here([...byName, '--cacert', certificate], { input: password })
  t.match(otherName, { code: 3, stderr: /use an https URL with a name that the certificate lists\n$/ })
  const old = await makeCertificate(tree, 'old')
  await expire(old)
  const expired = createTlsServer({ cert: readFileSync(old.certificate), key: readFileSync(old.key) })
  await new Promise<void>(resolve => expired.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void expired.close())
  const outdated = `https://127.0.0.1:${(expired.address() as AddressInfo).port}`
  t.match(
    await here(['login', '--stdin', '--url', outdated, '--cacert', old.certificate], { input: password }),
    {
      code: 3,
      stderr:
        /certificate has expired; install a new one on the controller, or set the clock of this machine\n$/
    }
  )
  t.match(await here([...login, '--cacert', certificate], { input: password }), { code: 0 })
  t.match(await here([...login, '--cacert', program], { input: password }), {
    code: 2,
    stderr: /svcctl: .*svcctl holds no certificate in PEM/
  })
  const tlsToPlain = ['login', '--stdin', '--url', url.replace('http:', 'https:')]
  t.match(await here(tlsToPlain, { input: password }), {
    code: 3,
    stderr: /no controller at .*: this port does not speak https; try http:\/\/\n/
  })
  const plainToTls = ['login', '--stdin', '--url', secure.replace('https:', 'http:')]
  t.match(await here(plainToTls, { input: password }), {
    code: 3,
    stderr: /no controller at .*: socket hang up; if this port does not speak http, try https:\/\/\n/
  })
  const trusting = { SVCD_URL: secure, SVCD_CACERT: certificate }
  t.match(await run(['node', 'show', 'node001'], '', trusting), { code: 0, stdout: /^name +node001$/m })
  t.match(await here(['login', '--stdin', '--cacert', certificate], { input: password }), {
    code: 2,
    stderr: /belongs to an https URL/
  })
})

t.test('a dry run tells why files cannot be made', async t => {
  const files = [{ service: 'dhcp', problem: 'template dhcp/templ_isc.cfg:1:1: no' }]
  const at = await stranger(t, (_, response) =>
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ message: 'm', changes: [], files }))
  )
  t.match(await here(['group', 'rm', 'a', '--dryrun'], { more: at }), {
    code: 0,
    stdout: 'm\ndhcp: its files could not be made: template dhcp/templ_isc.cfg:1:1: no\n'
  })
})

t.test('completion for bash', async t => {
  await ok(t, ['completion', 'bash'])
  t.match(await here(['login', '--stdin'], { input: password }), { code: 0 })
  // A person waits two seconds for names; a busy machine may take longer.
  const script = `timeout() { shift; "$@"; }
    eval "$(${program} completion bash)"
    for line in "$@"; do
      COMP_LINE=$line COMP_POINT=\${#line}; read -ra COMP_WORDS <<<"$line"; COMPREPLY=()
      _svcctl; echo "\${COMPREPLY[*]}"
    done`
  const lines: [string, string][] = [
    ['svcctl n', 'nodes network node'],
    ['svcd ctl node p', 'preview push power'],
    [`${program} node set node0`, 'node001 node002'],
    ['svcctl --url http://x node set node001 netb', 'netboot= netboot_once='],
    ['svcctl --image debian node p', 'preview push power'],
    ['svcctl -n 5 node p', 'preview push power'],
    ['svcctl node set node001 netboot=', 'yes no'],
    [`${program} node add node003 group=`, 'compute'],
    ['svcctl node power node001 o', 'on off'],
    ['svcctl node list --fields name,comm', 'name,comment'],
    ['svcctl node list --out', '--output'],
    ['svcctl --ver', '--version'],
    ['svcctl osimage ta', 'tags tag'],
    ['svcctl cluster set provision_method=', 'torrent http']
  ]
  const text = await start('bash', ['-c', script, 'bash', ...lines.map(([line]) => line)], { input: '', env })
    .ended
  t.same(
    text.stdout.trimEnd().split('\n'),
    lines.map(([, words]) => words),
    text.stderr
  )
  // A name is no command.
  const at = await stranger(t, (_, response) => {
    response
      .writeHead(200, { 'content-type': 'text/csv' })
      .end('name\r\n$(touch\t/tmp/x)\r\n`id`\r\ngood\r\n')
  })
  const names = await start('bash', ['-c', script, 'bash', `${program} node show `], {
    input: '',
    env: { ...env, ...at }
  }).ended
  t.equal(names.stdout, 'good\n', names.stderr)
})

t.test('the commands of docs/ctl.md, as they are typed', async t => {
  const documented = await Controller.start(t, 'image.initramfs=no')
  for (const part of ['etc', 'sbin/init'])
    mkdirSync(join(documented.directory, 'images/rocky9', part), { recursive: true })
  const text = readFileSync(join(tree, 'docs/ctl.md'), 'utf8')
  const blocks = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block)
  t.ok(blocks.length >= 5, 'there are some')
  const secret = join(documented.directory, 'state', 'admin-password')
  const commands = blocks
    .join('')
    .replaceAll('http://127.0.0.1:7050', `http://127.0.0.1:${documented.daemon.port}`)
    .replaceAll('curl -sS', 'curl -fsS')
    .replace('login admin', `login admin --stdin <${secret}`)
  const programs = await svcctlServed(t, scratch(t))
  const script = `set -eu; PATH=${programs}:${join(tree, 'bin')}:$PATH; cd ${join(tree, 'files')}\n${commands}`
  const { code, stdout, stderr } = await start('bash', ['-c', script], { input: '', env }).ended
  t.equal(code, 0, stderr)
  t.match(stdout, /^nodes test\[001-002\] would be changed:\n {2}comment: - -> rack 7, being rewired$/m)
  t.same(Object.keys((await documented.get('/config/node')).body.config.node), ['test001'])
  t.match((await documented.get('/config/group/thin')).body.config.group.thin, { variables: { rack: '7' } })
})

t.test('help is made from the tables, and a reader that goes away is no failure', async t => {
  t.match(await ok(t, ['--help']), /^Usage: svcctl login/)
  const ofNode = await ok(t, ['node', '--help'])
  t.match(
    ofNode,
    /^ {2}provision_method= +.*: torrent or http or stream or kickstart or preseed or autoinstall$/m
  )
  t.notMatch(ofNode, /null|base64/, 'words of the interface, which are not typed here')
  const { stdout } = await start(
    'bash',
    ['-c', `"$0" completion bash | true; echo "\${PIPESTATUS[0]}"`, program],
    {
      input: ''
    }
  ).ended
  t.equal(stdout, '0\n')
})
