import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { bookworm, noble } from './debian-tree.js'
import { bootController, type ControllerRelease, makeController } from './package/controller.js'

// The packages of the last commit: two clones make the same bytes. A Debian or an Ubuntu without Node, booted
// in a virtual machine with its own systemd, installs one, runs it, serves a node on which it installs a
// Debian, upgrades and purges it. What it does there is in package/guest.sh.

t.setTimeout(6 * 3_600_000)
requirePrograms('debootstrap', 'qemu-system-x86_64', 'mke2fs', 'dpkg-deb', 'rpmbuild', 'git', 'lintian')
requirePrograms('qemu-aarch64-static', '/usr/aarch64-linux-gnu/lib/libstdc++.so.6')
const hour = { timeout: 3_600_000 }

/** Makes packages of a clone of HEAD; gives their files. */
async function made(from: string, directory: string): Promise<string[]> {
  await output('git', ['clone', '-q', from, directory], hour)
  return make(directory, 'deb', 'rpm')
}

/** Begins a command: without the loader of the test runner. */
const plainly = ['env', '--unset=NODE_OPTIONS'] as const

/** `make` in a clone; gives the files of its packages. */
async function make(directory: string, ...goals: readonly string[]): Promise<string[]> {
  const [program, ...words] = plainly
  await output(program, [...words, 'make', '-C', directory, ...goals], hour)
  const out = join(directory, 'out')
  return (await readdir(out)).sort().map(name => join(out, name))
}

const directory = scratch(t)
const [a, b] = [join(directory, 'a'), join(directory, 'b')]
let first: Promise<string[]> | undefined
/** The packages that the first clone makes, once for all tests. */
const packages = () => {
  first ??= made(checkout, a)
  return first
}
const debOf = (files: readonly string[]) => files.find(file => file.endsWith('.deb')) ?? ''

t.test('two clones of one commit make the same bytes', async t => {
  // The checkout may get a commit meanwhile: the second clone is of the first one.
  const [files, second] = [await packages(), await made(a, b)]
  t.match(files.map(file => file.replace(/.*\.(\w+)$/, '$1')).sort(), ['deb', 'rpm'])
  for (const [index, file] of files.entries())
    t.ok((await readFile(file)).equals(await readFile(second[index] ?? '')), `${file} and its twin`)
  const deb = debOf(files)
  t.notMatch(await output('dpkg-deb', ['-c', deb]), /\/\.[^/\s].*/, 'no hidden file or directory')
  t.equal(await output('lintian', ['--fail-on=none', deb], hour), '', 'lintian says nothing')
})

t.test('the package for arm64 holds a daemon that answers there, its processor emulated', async t => {
  await packages()
  const file = (await make(a, 'deb', 'ARCH=arm64')).find(name => name.includes('arm64'))
  const [root, state] = [join(directory, 'arm64'), join(directory, 'arm64-state')]
  await mkdir(state)
  await output('dpkg-deb', ['-x', file ?? '', root], hour)
  const code = join(root, 'usr/lib/svcd/bin')
  const emulated = ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu'] as const
  const [program, ...words] = [...plainly, ...emulated, join(code, 'node'), join(code, 'svcd')]
  t.match(await output(program, [...words, 'version'], hour), /^svcd \d/)
  const listen = `127.0.0.1:${await freePort()}`
  const settings = [`http.listen=${listen}`, `paths.state=${state}`, `paths.files=${state}/files`]
  const daemon = start(program, [
    ...[...words, 'serve', '--config', join(root, 'etc/svcd/svcd.ini')],
    ...[...settings, `image.directory=${state}/images`].flatMap(each => ['--set', each])
  ])
  t.teardown(() => daemon.kill())
  await daemon.says('next, ask for a token')
  const answer = await fetch(`http://${listen}/version`)
  t.equal(answer.status, 200)
  t.match(await answer.json(), { version: { service: String } })
})

/**
 * A node on the wire of a controller, from power on; runs until the signal. Gives the lines of its console.
 */
function bootNode(wire: string, signal: AbortSignal): string[] {
  const lines: string[] = []
  runMachine({
    ...{ name: 'node001', mac: '52:54:00:14:0b:02', network: { wire }, memoryMiB: 2048, signal },
    ...{ timeLimitMs: hour.timeout, onLine: line => lines.push(line) }
  }).catch(error => lines.push(String(error)))
  return lines
}

const network = /^\{"config":\{"network":\{"cluster":.*\} {2}200$/
const phases: Readonly<Record<string, Readonly<Record<string, string | RegExp>>>> = {
  install: {
    installed: /^\S+ installed$/,
    node: 'none',
    active: 'active active',
    enabled: 'enabled enabled',
    verify: '',
    security: /svcd\.service: 1\.\d OK/,
    answer: /"service"/,
    user: 'svcd',
    capabilities: /^CapEff:\s0{16}$/,
    'start-status': '0',
    network: /201$/,
    image: /201$/,
    pack: '204',
    clone: /201$/,
    helper: 'active active',
    order: 'Stopped svcd.service Stopping svcd-helper.service',
    restarted: 'active',
    kept: network,
    'dnsmasq-files': /svcd-dhcp\.conf.*svcd-dns\.conf/,
    dhcp: /"state":"running"/,
    done: 'install'
  },
  serve: {
    rebooted: 'active active',
    survived: network,
    osimage: /201$/,
    packed: '204',
    'dhcp-range': /200$/,
    group: /201$/,
    node: /201$/,
    serving: /"state":"running"/,
    lent: /^DHCPACK/,
    state: '"state":"installer.completed"',
    // docs/boot-flow.md.
    steps: /script kernel initramfs install report image report running$/,
    why: /all is well/,
    runs: /"osimage":"debian"/,
    done: 'serve'
  },
  upgrade: {
    rebooted: 'active active',
    upgraded: /^\S+\.1 installed$/,
    renewed: 'active',
    edited: '# edited',
    state: network,
    removed: 'inactive inactive /etc/svcd/svcd.ini /var/lib/svcd/network',
    again: network,
    purged: '',
    // What dnsmasq reads, and what it wrote.
    left: [
      ...['/etc/dnsmasq.d/svcd-dhcp.conf', '/etc/dnsmasq.d/svcd-dns.conf', '/var/lib/misc/dnsmasq.leases'],
      ...['/var/lib/misc/svcd-dhcp', '/var/lib/misc/svcd-dhcp/525400140b02.host'],
      ...['/var/lib/misc/svcd-dns', '/var/lib/misc/svcd-dns/cluster.hosts']
    ]
      .map(file => `> ${file}`)
      .join(' '),
    gone: '',
    done: 'upgrade'
  }
}

const releases: Readonly<Record<string, ControllerRelease>> = {
  'Debian 12': { ...bookworm, kernel: 'linux-image-cloud-amd64' },
  'Debian sid': { suite: 'sid', kernel: 'linux-image-cloud-amd64' },
  'Ubuntu 24.04': { ...noble, kernel: 'linux-image-virtual' }
}

for (const [name, release] of Object.entries(releases))
  t.test(`${name} without Node installs the package and runs it under its own systemd`, async t => {
    const controller = await makeController(scratch(t), release, debOf(await packages()))
    for (const [phase, wanted] of Object.entries(phases)) {
      const over = new AbortController()
      let lines: readonly string[] = []
      const { code, found, about } = await bootController(controller, () => {
        lines = bootNode(controller.wire, over.signal)
      })
      over.abort()
      const all = { ...about, node: tail(lines.join('\n')) }
      t.equal(code, 0, `${phase}: the machine ended in order`, all)
      for (const [name, value] of Object.entries(wanted)) {
        if (typeof value === 'string') t.equal(found.get(name), value, `${phase}: ${name}`, all)
        else t.match(found.get(name), value, `${phase}: ${name}`, all)
      }
      t.comment(`${phase}: ${found.get('security') ?? ''} ${found.get('stopped-in') ?? ''}`)
    }
  })
