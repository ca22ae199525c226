import { chmodSync, unlinkSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { checkAll } from '../lib/check.js'
import { banner } from '../lib/cli/banner.js'
import { loadConfig } from '../lib/config/load.js'
import { cheapHash } from './support/callers.js'
import { makeCertificate } from './support/certificate.js'
import { Controller } from './support/controller.js'
import { scratch } from './support/scratch.js'

const shipped = fileURLToPath(new URL('../etc/svcd.ini', import.meta.url))
const templates = fileURLToPath(new URL('../templates', import.meta.url))

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
})

// rules 7.7
t.test('the programs of DHCP and DNS', async t => {
  const state = t.testdir({ 'svcd.ini': '' })
  const lacking = (key: string, program: string) =>
    `[${key}: there is no program ${program}, or it may not be run`
  t.strictSame(await check(state, 'dhcp.control=/no/such/control'), none, 'svcd configures no server')
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
    banner(loadConfig(join(state, 'svcd.ini'), [...reachable, ...settings]), {
      address: '127.0.0.1',
      port: 1
    })
  t.match(await check(state, viewer), { problems: [], warnings: [says] })
  t.match(start(viewer), new RegExp(`^warning: ${says.source}$`, 'm'))
  for (const settings of [[], [viewer, admin]]) {
    t.strictSame(await check(state, ...settings), none)
    t.notMatch(start(...settings), 'warning')
  }
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
    /^\[http\] tls_certificate: there is no file .*one\.crt; put it there/
  ])
})
