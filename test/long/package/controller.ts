import { copyFile, mkdir, readdir, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { start } from '../../support/child.js'
import { checkout, output } from '../../support/programs.js'
import { emulated, plain, tail, wireEnd } from '../../support/virtual-machine.js'
import { debianTree, type Release } from '../debian-tree.js'

/** A release that a controller is made of, and its kernel for virtual machines. */
export interface ControllerRelease extends Release {
  readonly kernel: string
}

/** A virtual machine that is to become a controller. */
export interface Controller {
  /** Its disk, as a file. */
  readonly disk: string
  readonly kernel: string
  readonly initrd: string
  /** The socket that a node's network card is tied to. */
  readonly wire: string
}

const hour = { timeout: 3_600_000 }
const guest = join(checkout, 'test/long/package')

/** A tree of its own to change, of packages and a release; no service is held back in it. */
async function treeOf(directory: string, release: Release, packages: readonly string[]): Promise<void> {
  await output('cp', ['-a', '-x', await debianTree({ packages, release }), directory], hour)
  await rm(join(directory, 'usr/sbin/policy-rc.d'))
}

/** The tree of an image for nodes, as docs/getting-started.md makes it, at `directory`. */
async function nodeTree(directory: string): Promise<void> {
  const packages = ['linux-image-cloud-amd64', 'systemd-sysv', 'udev', 'kmod', 'iproute2', 'busybox']
  await treeOf(directory, { suite: 'bookworm' }, [...packages, 'initramfs-tools', 'zstd', 'curl'])
  // What takes an emulated machine long.
  await writeFile(join(directory, 'etc/initramfs-tools/conf.d/fast'), 'COMPRESS=gzip\nCOMPRESSLEVEL=1\n')
}

/**
 * A machine in `directory` with a release and without Node. The package `deb` lies in it, a later version of
 * it, and an image for nodes. What it does at each boot is in guest.sh: first the phase `install`.
 */
export async function makeController(
  directory: string,
  { kernel, ...release }: ControllerRelease,
  deb: string
): Promise<Controller> {
  const tree = join(directory, 'tree')
  await treeOf(tree, release, [
    ...[kernel, 'systemd-sysv', 'dbus', 'udev', 'kmod', 'initramfs-tools', 'busybox'],
    // The last one is what the package asks for in releases that have it apart: the machine has no way to a
    // mirror.
    ...['curl', 'dnsmasq', 'iproute2', 'openssh-client', 'procps', 'rsync', 'zstd', 'util-linux-extra']
  ])
  const root = join(tree, 'root')
  await mkdir(join(root, 'packages'))
  await copyFile(deb, join(root, 'packages/old.deb'))
  await output('sh', [join(guest, 'renew.sh'), deb, join(root, 'packages/new.deb')], hour)
  await nodeTree(join(root, 'image'))
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
  const disk = join(directory, 'disk')
  await writeFile(disk, '')
  await truncate(disk, 6 * 2 ** 30)
  await output('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', tree, disk], hour)
  const names = await readdir(join(tree, 'boot'))
  const keep = async (prefix: string) => {
    const name = names.find(name => name.startsWith(prefix)) ?? prefix
    await copyFile(join(tree, 'boot', name), join(directory, name))
    return join(directory, name)
  }
  const boot = { kernel: await keep('vmlinuz-'), initrd: await keep('initrd.img-') }
  await output('rm', ['-rf', '--one-file-system', tree], hour)
  return { disk, ...boot, wire: join(directory, 'wire') }
}

/**
 * One boot of a controller, until it is off or wants to start again: its exit code, and what it found, by
 * name. `onReady` is called when it waits for a node to boot.
 */
export async function bootController(controller: Controller, onReady: () => void) {
  const { disk, kernel, initrd, wire } = controller
  await rm(wire, { force: true })
  const machine = start(
    'qemu-system-x86_64',
    [
      ...[...emulated, '-m', '1536', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
      ...['-drive', `id=disk,if=none,format=raw,file=${disk}`, '-device', 'virtio-blk-pci,drive=disk'],
      ...wireEnd('52:54:00:14:0b:01', wire),
      ...['-kernel', kernel, '-initrd', initrd],
      ...['-append', 'root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check systemd.show_status=no']
    ],
    { input: '' }
  )
  // Its end without that is told below.
  machine.says('PROOF ready').then(onReady, () => {})
  const { code, stdout, stderr } = await machine.ended
  const console = plain(stdout)
  const found = new Map(
    // What is empty has lost its blank.
    [...console.matchAll(/^PROOF (\S+)(?: (.*))?$/gm)].map(([, name = '', value = '']) => [
      name,
      value.trim()
    ])
  )
  return { code, found, about: { stderr, console: tail(console) } }
}
