import { chmodSync, mkdirSync, unlinkSync, writeFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { problemText } from '../../lib/base/errors.js'
import { checkAll } from '../../lib/cli/checks.js'
import { banner } from '../../lib/cli/serve.js'
import { loadConfig, readConfig } from '../../lib/config/load.js'
import { programsOf } from '../../lib/services/services.js'
import { cheapHash } from '../support/callers.js'
import { makeCertificate, makeIssued } from '../support/certificate.js'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const shipped = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const templates = fileURLToPath(new URL('../../templates', import.meta.url))

/** A front server: without one, or another address than loopback, there are warnings. */
const reachable = ['http.url=https://controller.example.org', 'http.trusted_proxies=127.0.0.1']

/** What `svcd check` says of an ini with these keys, and a state directory without objects. */
async function check(state: string, ...settings: string[]) {
  return checkAt(Date.now(), state, ...settings)
}

async function checkAt(now: number, state: string, ...settings: string[]) {
  const ini = join(state, 'svcd.ini')
  const config = loadConfig(ini, [
    `paths.state=${join(state, 'var')}`,
    `paths.templates=${templates}`,
    ...reachable,
    ...settings
  ])
  const { problems, warnings } = await checkAll(config, now)
  const given = settings.map(setting => setting.split('=', 1)[0] as string)
  for (const { file, message } of problems) {
    const key = /^\[(\w+)\] (\w+)/.exec(message)?.slice(1).join('.') ?? ''
    t.equal(file, given.includes(key) ? `--set ${key}` : ini, 'where the key was given')
  }
  return { problems: problems.map(({ message }) => message), warnings }
}

const none = { problems: [], warnings: [] }

// rules 5.10, 5.11, 7.7
t.test('a directory and a provider that do not answer', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const [ldap, roles] = ['auth.ldap_url=ldap://127.0.0.1:1', 'auth.ldap_roles=viewer=*']
  const refused = '127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1'
  t.strictSame(await check(state, ldap, roles, 'auth.ldap_base=dc=x'), {
    problems: [`[auth] ldap_url: ldap://${refused}`],
    warnings: []
  })
  const two = ['auth.ldap_url=ldap://127.0.0.1:1,ldap://127.0.0.1:2', 'auth.ldap_base=dc=x', roles]
  const file = ['auth.ldap_bind_dn=cn=svcd', 'auth.ldap_bind_password_file=/none']
  t.match(await check(state, ...two, ...file), {
    problems: [/^\[auth\] ldap_bind_password_file: .*\/none'$/],
    warnings: []
  })
  const oidc = ['auth.oidc_issuer=http://127.0.0.1:1', 'auth.oidc_client_id=svcd', 'auth.oidc_roles=viewer=*']
  t.strictSame(await check(state, ...oidc), {
    problems: [`[auth] oidc_issuer: http://${refused}`],
    warnings: []
  })
})

/** An object of a state directory, as the store writes it. */
function put(path: string, fields: object): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(`${path}.json`, `${JSON.stringify({ name: basename(path), ...fields }, null, 2)}\n`)
}

// rules 7.7
t.test('the directory of iPXE binaries, and the binaries', async t => {
  const state = t.testdir({
    'svcd.ini': '',
    ipxe: { 'ipxe.efi': '' },
    all: { 'ipxe.efi': '', 'undionly.kpxe': '', 'ipxe-arm64.efi': '' }
  })
  const missing = join(state, 'missing')
  t.strictSame(await check(state), none, 'none is needed')
  t.strictSame(await check(state, `boot.ipxe_directory=${join(state, 'all')}`), none)
  t.match(await check(state, `control.ca_file=${missing}`), {
    problems: [`[control] ca_file: there is no file ${missing}`]
  })
  t.strictSame(await check(state, `boot.ipxe_directory=${missing}`), {
    problems: [`[boot] ipxe_directory: there is no directory ${missing}`],
    warnings: []
  })
  const ipxe = `boot.ipxe_directory=${join(state, 'ipxe')}`
  t.strictSame(await check(state, ipxe), {
    problems: [],
    warnings: [
      `[boot] bios: there is no file ${join(state, 'ipxe/undionly.kpxe')}`,
      `[boot] efi_arm64: there is no file ${join(state, 'ipxe/ipxe-arm64.efi')}`
    ]
  })
  t.strictSame((await check(state, ipxe, 'boot.efi_x64=snponly.efi', 'boot.bios=ipxe.pxe')).problems, [
    `[boot] bios: there is no file ${join(state, 'ipxe/ipxe.pxe')}`,
    `[boot] efi_x64: there is no file ${join(state, 'ipxe/snponly.efi')}`
  ])
  const tftp = ['tftp.server=tftpd-hpa', 'tftp.control=true', 'tftp.check=true', `tftp.shim_x64=${missing}`]
  t.match(await check(state, ...tftp, `tftp.grub_x64=${join(state, 'svcd.ini')}`), {
    problems: [
      `[tftp] shim_x64: there is no file ${missing}; type apt-get install shim-signed, or name another file`
    ],
    warnings: [/^\[boot\] ipxe_directory: it is empty, so the TFTP tree of svcd has no undionly.kpxe/]
  })
})

// rules 7.7
t.test('the programs of DHCP and DNS', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const lacking = (key: string, program: string) =>
    `[${key}: there is no program ${program}, or it may not be run`
  t.strictSame(await check(state, 'dhcp.control=/no/such/control'), none, 'svcd configures no server')
  const named = (...set: string[]) => programsOf(loadConfig('etc/svcd.ini', ['dhcp.server=isc', ...set]))
  const dhcpd = (usualFor: string | undefined) => ({ key: '[dhcp] check', program: 'dhcpd', usualFor })
  t.match(named(), [{ key: '[dhcp] control' }, dhcpd('[dhcp] server = isc')], 'nobody named it')
  t.match(named('dhcp.check=dhcpd -t')[1], dhcpd(undefined))
  const there = ['dhcp.server=isc', 'dhcp.control=true', 'dhcp.check=true -t']
  t.strictSame(await check(state, ...there), none)
  t.strictSame((await check(state, ...there, 'dhcp.control=/no/such/control now')).problems, [
    lacking('dhcp] control', '/no/such/control')
  ])
  t.strictSame(
    (await check(state, ...there, 'dhcp.check=no-such-checker', 'dhcp.reload=no-such-reload')).problems,
    [lacking('dhcp] check', 'no-such-checker'), lacking('dhcp] reload', 'no-such-reload')]
  )
  const { problems } = await check(state, 'dns.server=bind', 'dns.control=no-such-control', 'dns.check=true')
  t.equal(problems[0], lacking('dns] control', 'no-such-control'))
})

// rules 7.7
t.test('what the ini names and the machine does not have is told with its line', async t => {
  const lines = ['[http]', 'listen = 192.0.2.1:7050', '[dns]', '', 'server = bind', 'control = /no/control']
  const state = t.testdir({ 'svcd.ini': lines.join('\n'), bin: {} })
  const ini = join(state, 'svcd.ini')
  const set = ['ssh.key=/no/key', `paths.state=${join(state, 'var')}`, `paths.templates=${templates}`]
  const path = process.env.PATH
  process.env.PATH = join(state, 'bin')
  t.teardown(() => {
    process.env.PATH = path
  })
  const told = (await checkAll(loadConfig(ini, set))).problems.map(problemText)
  const lacks = (program: string) => `there is no program ${program}, or it may not be run`
  for (const line of [
    `${ini}:2: [http] listen: no interface of this machine has 192.0.2.1`,
    '--set ssh.key: [ssh] key: there is no file /no/key; put the private key there, or leave it empty: svcd makes one',
    `${ini}:6: [dns] control: ${lacks('/no/control')}`,
    // Nobody named its checker: it is the server that needs one.
    `${ini}:5: [dns] check: ${lacks('named-checkconf')}, which is the usual one for [dns] server = bind: install it (apt-get install bind9), or name another one here`
  ])
    t.ok(told.includes(line), `${line}\n${told.join('\n')}`)
})

// rules 7.7
t.test('a directory of templates that is none is told by its key, a template by its path', async t => {
  const state = t.testdir({ 'svcd.ini': '', broken: { boot: { 'a.cfg': '{% if %}' } } })
  const none = join(state, 'none')
  const { problems } = await check(state, `paths.templates=${none}`)
  t.match(problems.join('\n'), `[paths] templates: ENOENT: no such file or directory, scandir '${none}'`)
  const broken = loadConfig(join(state, 'svcd.ini'), [
    `paths.state=${join(state, 'var')}`,
    `paths.templates=${join(state, 'broken')}`
  ])
  const [first] = (await checkAll(broken)).problems.filter(({ line }) => line !== undefined)
  t.equal(first?.file, join(state, 'broken/boot/a.cfg'))
})

// rules 7.7
t.test('the address of the controller', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const own = Object.values(networkInterfaces()).flatMap(all => all ?? [])
  for (const { address } of own.filter(({ scopeid }) => !scopeid))
    t.strictSame(
      (await check(state, 'http.url=http://a', `controller.address=${address}`)).problems,
      [],
      address
    )
  t.strictSame((await check(state, 'controller.address=127.0.0.53')).problems, [])
  t.strictSame((await check(state, 'controller.address=192.0.2.1')).problems, [
    '[controller] address: no interface of this machine has 192.0.2.1'
  ])
  const listens = async (...settings: string[]) => (await check(state, ...settings)).problems
  const away = 'http.listen=192.0.2.1:7050'
  t.strictSame(await listens(away), ['[http] listen: no interface of this machine has 192.0.2.1'])
  t.strictSame(await listens(away, 'controller.address='), [
    '[http] listen: no interface of this machine has 192.0.2.1'
  ])
  t.strictSame(await listens('http.listen=0.0.0.0:7050', 'controller.address=127.0.0.1'), [])
  const { config } = readConfig(join(state, 'svcd.ini'), [
    ...[`paths.state=${join(state, 'var')}`, `paths.templates=${templates}`],
    'http.listen=0.0.0.0:7050'
  ])
  if (!config) throw new Error('the faults of single keys keep nothing from being checked')
  t.strictSame((await checkAll(config)).problems, [], 'that an address is needed is told already')
})

// rules 7.7
t.test('a packed image that nodes cannot boot is a warning', async t => {
  const c = await Controller.start(t)
  const warned = async () =>
    (await checkAll(loadConfig(shipped, [...c.overrides]))).warnings.filter(text => /is packed/.test(text))
  await c.cluster()
  t.strictSame(await warned(), [])
  const without = (what: string) =>
    `OS image compute is packed, and has no ${what}: its nodes cannot boot from the network`
  await c.post('/config/osimage/compute', { initrdfile: null })
  t.strictSame(await warned(), [without('initramfs')])
  await c.post('/config/osimage/compute', { kernelfile: null })
  t.strictSame(await warned(), [without('kernel')])
})

// rules 7.7
t.test('a tag that nodes cannot boot is a warning', async t => {
  const c = await Controller.start(t)
  const warned = async () =>
    (await checkAll(loadConfig(shipped, [...c.overrides]))).warnings.filter(text => /tag/.test(text))
  await c.cluster()
  const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
  for (const [tag, lacking] of [
    ['whole', {}],
    ['empty', { kernelfile: null, initrdfile: null, imagefile: null }],
    ['silent', { kernelfile: null }],
    ['blind', { initrdfile: null }]
  ] as const) {
    await c.post('/config/osimage/compute', { ...files, ...lacking })
    await c.post('/config/osimage/compute/tag', { tag })
  }
  await c.post('/config/osimage/compute', files)
  const without = (tag: string, what: string) =>
    `OS image compute: tag ${tag} has no ${what}: nodes with it cannot boot from the network; pack the image, and give it the tag again`
  t.strictSame(await warned(), [
    without('blind', 'initramfs'),
    without('empty', 'packed image'),
    without('silent', 'kernel')
  ])
})

// rules 7.7
t.test('a role without a file is warned of, once', async t => {
  const roles = t.testdir({ login: '', directory: {} })
  const c = await Controller.start(t, `paths.roles=${roles}`)
  await c.cluster()
  await c.post('/config/group/compute', { roles: 'login,slurm' })
  await c.post('/config/node/n1', { group: 'compute', roles: 'login, slurm, directory' })
  const { warnings } = await checkAll(loadConfig(shipped, [...c.overrides]))
  t.strictSame(
    warnings.filter(warning => warning.includes('role')),
    [
      `group compute has the role slurm, and there is no file ${join(roles, 'slurm')}`,
      `node n1 has the role directory, and there is no file ${join(roles, 'directory')}`
    ]
  )
})

// rules 7.7
t.test('files for a front server that nobody has named are a warning', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  t.strictSame(await check(state, 'http.front_files=/svcd-files/'), none)
  const { problems, warnings } = await check(
    state,
    ...['http.front_files=/svcd-files/', 'http.trusted_proxies=', 'http.listen=0.0.0.0:7050'],
    'controller.address=127.0.0.1'
  )
  t.strictSame(problems, [])
  t.match(warnings, [
    /^\[http\] front_files: it does nothing without trusted_proxies; name the front server there/
  ])
})

// rules 7.7
t.test('users of whom none is an admin are a warning, at the start as well', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const [viewer, admin] = [`users.eve=viewer ${cheapHash('x')}`, `users.root=admin ${cheapHash('x')}`]
  const says =
    /\[users\]: no user has the role admin: nobody can change anything over http, .*`svcd passwd NAME` prints/
  const start = (...settings: string[]) =>
    banner(
      loadConfig(join(state, 'svcd.ini'), [...reachable, ...settings]),
      { address: '127.0.0.1', port: 1 },
      'svcctl'
    )
  t.match(await check(state, viewer), { problems: [], warnings: [says] })
  t.match(start(viewer), new RegExp(`^warning: ${says.source}$`, 'm'))
  const given = [
    'auth.oidc_issuer=http://127.0.0.1:1',
    'auth.oidc_client_id=svcd',
    'auth.oidc_roles=admin=ops'
  ]
  const oidc =
    /no user has the role admin: nobody can change anything over http while .* does not answer; add/
  t.match((await check(state, viewer, ...given)).warnings, [oidc])
  for (const settings of [[], [viewer, admin]]) {
    t.strictSame(await check(state, ...settings), none)
    t.notMatch(start(...settings), 'warning')
  }
})

// rules 5.2
t.test('a role that is limited to a group of nodes that does not exist', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  put(join(state, 'var/group/compute'), {})
  const directory = ['auth.ldap_url=ldap://127.0.0.1:1', 'auth.ldap_base=dc=x']
  const roles = 'auth.ldap_roles=viewer=* | operator:compute,gpu=team'
  const users = [`users.bob=operator:compute,comput ${cheapHash('x')}`, `users.root=admin ${cheapHash('x')}`]
  t.match((await check(state, ...directory, roles, ...users)).warnings, [
    '[users] bob: there is no group comput (did you mean "compute"?): it reaches no node by it',
    '[auth] ldap_roles: there is no group gpu: it reaches no node by it'
  ])
})

// rules 2.18, 7.7
t.test('the certificate and its key', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const directory = scratch(t)
  const [one, two] = [await makeCertificate(directory, 'one'), await makeCertificate(directory, 'two')]
  const pair = (key: string) => [`http.tls_certificate=${one.certificate}`, `http.tls_key=${key}`]
  const after = (days: number) => checkAt(Date.now() + days * 86_400_000, state, ...pair(one.key))
  t.strictSame(await check(state, ...pair(one.key)), none)
  t.strictSame(await check(state, 'http.url=https://one:7443', ...pair(one.key)), none)
  t.strictSame((await check(state, 'http.url=https://two:7443', ...pair(one.key))).warnings, [
    `[http] url https://two:7443: ${one.certificate} is not for two; nodes refuse it`
  ])
  const issued = await makeIssued(directory, 'leaf', one)
  const leaf = [`http.tls_certificate=${issued.certificate}`, `http.tls_key=${issued.key}`]
  const https = 'http.url=https://leaf:7443'
  t.strictSame((await check(state, https, ...leaf)).warnings, [
    `[http] url https://leaf:7443: iPXE with TRUST= takes a certificate whose root it is sent: append CN=one to ${issued.certificate}, or name its file in [store] ca`
  ])
  t.strictSame(await check(state, https, ...leaf, `store.ca=${one.certificate}`), none)
  t.strictSame(await check(state, ...leaf), none, 'nodes do not use it')
  t.match((await check(state, ...pair(two.key))).problems, [
    /^\[http\] tls_key: .*two\.key is not the key of .*one\.crt: put both files of one certificate there$/
  ])
  const { problems, warnings } = await after(80)
  t.strictSame(problems, [])
  t.match(warnings, [/^\[http\] tls_certificate: .*one\.crt expires at .*: renew it/])
  t.match((await after(91)).problems, [
    /^\[http\] tls_certificate: .*one\.crt has expired at .*: clients refuse it; renew it$/
  ])
  chmodSync(one.key, 0o644)
  t.match((await check(state, ...pair(one.key))).problems, [
    /^\[http\] tls_key: .*one\.key has mode 0644: .*; give it mode 0640 \(chmod 0640 .*one\.key\)$/
  ])
  unlinkSync(one.certificate)
  t.match((await check(state, ...pair(one.key))).problems, [
    /^\[http\] tls_certificate: there is no file .*one\.crt; put it there/,
    /^\[http\] tls_key: .*one\.key has mode 0644: /
  ])
})

// rules 7.7
t.test('the key of ssh, and the directories and files of images', async t => {
  const state = t.testdir({ 'svcd.ini': '', files: {}, images: {}, key: '' })
  const at = (...names: string[]) => join(state, ...names)
  t.strictSame(await check(state, `ssh.key=${at('key')}`), none)
  t.match((await check(state, `ssh.key=${at('none')}`)).problems, [
    `[ssh] key: there is no file ${at('none')}; put the private key there`
  ])
  const objects: [string, object][] = [
    ['osimage/used', { kernelfile: 'vmlinuz', initrdfile: 'initrd', imagefile: 'used.tar' }],
    ['osimage/idle', { kernelfile: 'old', path: '/other' }],
    ['osimagetag/used:v1', { osimage: 'used', tag: 'v1', order: 1, imagefile: 'v1.tar' }],
    ['node/n1', { osimage: 'used' }],
    ['node/n2', { osimage: 'idle', netboot: false }]
  ]
  for (const [path, fields] of objects) put(at('var', path), fields)
  const config = (files: string, images: string) =>
    loadConfig(at('svcd.ini'), [
      ...[`paths.state=${at('var')}`, `paths.templates=${templates}`, ...reachable],
      ...[`paths.files=${at(files)}`, `image.directory=${at(images)}`]
    ])
  writeFileSync(at('files/vmlinuz'), '')
  const found = await checkAll(config('files', 'images'))
  const lacks = (title: string, field: string, file: string) =>
    `${title}: field "${field}": there is no file ${at('files', file)}`
  t.strictSame(found.problems, [
    {
      file: at('var/osimage/used.json'),
      message: `${lacks('OS image used', 'initrdfile', 'initrd')}, and nodes boot with it`
    },
    {
      file: at('var/osimage/used.json'),
      message: `${lacks('OS image used', 'imagefile', 'used.tar')}, and nodes boot with it`
    }
  ])
  t.strictSame(found.warnings, [
    'OS image used: tag v1 has no kernel: nodes with it cannot boot from the network; pack the image, and give it the tag again',
    lacks('OS image idle', 'kernelfile', 'old'),
    lacks('OS image used: tag v1', 'imagefile', 'v1.tar'),
    'OS image idle: there is no directory /other: it cannot be packed or pushed',
    `OS image used: there is no directory ${at('images/used')}: it cannot be packed or pushed`
  ])
  put(at('var/node/n1'), { osimage: 'used', osimagetag: 'v1' })
  t.match((await checkAll(config('files', 'images'))).problems, [
    { message: `${lacks('OS image used: tag v1', 'imagefile', 'v1.tar')}, and nodes boot with it` }
  ])
  t.match((await checkAll(config('no-files', 'no-images'))).problems, [
    { message: `[paths] files: there is no directory ${at('no-files')}, where 3 OS images or tags have` },
    { message: `[image] directory: there is no directory ${at('no-images')}, where 1 OS images or tags have` }
  ])
})

// rules 4.25, 7.7
t.test('a file that cannot be rendered for one node; one that fails for all is tried for three', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const at = (...names: string[]) => join(state, ...names)
  put(at('var/file/rack'), { path: '/etc/rack', template: 'rack\n{{ variables.rack }}\n' })
  put(at('var/file/motd'), { path: '/etc/motd', template: '{{ node }}\n' })
  for (const rack of [1, 2, 3, 4, 5])
    put(at(`var/node/n${rack}`), {
      files: ['rack', 'motd'],
      ...(rack === 2 ? {} : { variables: { rack: `${rack}` } })
    })
  const config = loadConfig(at('svcd.ini'), [
    ...[`paths.state=${at('var')}`, `paths.templates=${templates}`, ...reachable]
  ])
  const one = await checkAll(config)
  t.match(one.problems, [{ file: at('var/file/rack.json'), message: /^node n2: rack:2:\d+: .*rack/ }])
  put(at('var/file/motd'), { path: '/etc/motd', template: '{{ nothing }}\n' })
  const all = (await checkAll(config)).problems.map(({ message }) => message)
  t.match(all, [
    /^node n1: motd:1:\d+: /,
    /^node n2: motd:1:\d+: /,
    /^node n2: rack:2:\d+: /,
    /^node n3: motd:1:\d+: .*; it is tried for no further node$/
  ])
})
