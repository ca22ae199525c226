import { copyFile, mkdir, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { plain, tail } from '../support/virtual-machine.js'
import { debianTree } from './debian-tree.js'

// The packages of the last commit: two clones make the same bytes, and a Debian without Node, booted in a virtual
// machine with its own systemd, installs one, runs, upgrades and purges it. What it does there is in package/guest.sh.

t.setTimeout(3 * 3_600_000)
requirePrograms('debootstrap', 'qemu-system-x86_64', 'mke2fs', 'dpkg-deb', 'rpmbuild', 'git')
const hour = { timeout: 3_600_000 }
const guest = join(checkout, 'test/long/package')

/** Makes the packages of a clone of HEAD; gives their files. */
async function made(directory: string): Promise<string[]> {
  await output('git', ['clone', '-q', checkout, directory], hour)
  // Without the loader of the test runner.
  await output('env', ['--unset=NODE_OPTIONS', 'make', '-C', directory, 'deb', 'rpm'], hour)
  const out = join(directory, 'out')
  return (await readdir(out)).sort().map(name => join(out, name))
}

const directory = scratch(t)
let deb = ''

t.test('two clones of one commit make the same bytes', async t => {
  const [first, second] = [await made(join(directory, 'a')), await made(join(directory, 'b'))]
  t.match(first.map(file => file.replace(/.*\.(\w+)$/, '$1')).sort(), ['deb', 'rpm'])
  for (const [index, file] of first.entries())
    t.ok((await readFile(file)).equals(await readFile(second[index] ?? '')), `${file} and its twin`)
  deb = first.find(file => file.endsWith('.deb')) ?? ''
})

/** A disk with a Debian that does the phase `install` when it boots. */
async function disk(): Promise<{ file: string; kernel: string; initrd: string }> {
  const packages = [
    ...['systemd-sysv', 'dbus', 'udev', 'kmod', 'linux-image-cloud-amd64', 'initramfs-tools', 'busybox'],
    ...['curl', 'dnsmasq', 'iproute2', 'openssh-client', 'procps', 'rsync', 'zstd']
  ]
  const tree = join(directory, 'tree')
  await output('cp', ['-a', '-x', await debianTree({ packages }), tree], hour)
  await rm(join(tree, 'usr/sbin/policy-rc.d'))
  const root = join(tree, 'root')
  await mkdir(join(root, 'packages'))
  await copyFile(deb, join(root, 'packages/old.deb'))
  await output('sh', [join(guest, 'renew.sh'), deb, join(root, 'packages/new.deb')], hour)
  await copyFile(join(guest, 'guest.sh'), join(root, 'guest.sh'))
  await writeFile(join(root, 'phase'), 'install\n')
  await writeFile(join(tree, 'etc/fstab'), '/dev/vda / ext4 defaults 0 1\n')
  const units = join(tree, 'etc/systemd/system')
  await writeFile(
    join(units, 'proof.service'),
    '[Unit]\nAfter=multi-user.target\n\n[Service]\nType=exec\nExecStart=/bin/sh /root/guest.sh\n'
  )
  await mkdir(join(units, 'multi-user.target.wants'), { recursive: true })
  await symlink('../proof.service', join(units, 'multi-user.target.wants/proof.service'))
  const file = join(directory, 'disk')
  await writeFile(file, '')
  await truncate(file, 4 * 2 ** 30)
  await output('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', tree, file], hour)
  const boot = await readdir(join(tree, 'boot'))
  const of = (prefix: string) => join(tree, 'boot', boot.find(name => name.startsWith(prefix)) ?? prefix)
  return { file, kernel: of('vmlinuz-'), initrd: of('initrd.img-') }
}

/** One boot of the machine, until it is off or wants to start again: what it found. */
async function boot({ file, kernel, initrd }: Awaited<ReturnType<typeof disk>>) {
  const { ended } = start(
    'qemu-system-x86_64',
    [
      ...['-accel', 'tcg', '-m', '1536', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
      ...['-drive', `id=disk,if=none,format=raw,file=${file}`, '-device', 'virtio-blk-pci,drive=disk'],
      ...['-kernel', kernel, '-initrd', initrd],
      ...['-append', 'root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check systemd.show_status=no']
    ],
    { input: '' }
  )
  const { code, stdout, stderr } = await ended
  const console = plain(stdout)
  const found = new Map(
    [...console.matchAll(/^PROOF (\S+) (.*)$/gm)].map(([, name = '', value = '']) => [name, value.trim()])
  )
  return { code, found, about: { stderr, console: tail(console) } }
}

t.test('a Debian without Node installs the package and runs it under its own systemd', async t => {
  const machine = await disk()
  const network = /^\{"config":\{"network":\{"cluster":.*\} {2}200$/
  const phases: Record<string, Record<string, string | RegExp>> = {
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
    upgrade: {
      rebooted: 'active active',
      survived: network,
      upgraded: /^\S+\.1 installed$/,
      renewed: 'active',
      edited: '# edited',
      state: network,
      removed: 'inactive inactive /etc/svcd/svcd.ini /var/lib/svcd/network',
      again: network,
      purged: '',
      // What dnsmasq reads.
      left: '> /etc/dnsmasq.d/svcd-dhcp.conf > /etc/dnsmasq.d/svcd-dns.conf > /var/lib/misc/svcd-dns > /var/lib/misc/svcd-dns/cluster.hosts',
      gone: '',
      done: 'upgrade'
    }
  }
  for (const [phase, wanted] of Object.entries(phases)) {
    const { code, found, about } = await boot(machine)
    t.equal(code, 0, `${phase}: the machine ended in order`, about)
    for (const [name, value] of Object.entries(wanted)) {
      if (typeof value === 'string') t.equal(found.get(name), value, `${phase}: ${name}`, about)
      else t.match(found.get(name), value, `${phase}: ${name}`, about)
    }
    t.comment(`${phase}: ${found.get('security') ?? ''} ${found.get('stopped-in') ?? ''}`)
  }
})
