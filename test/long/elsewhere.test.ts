import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { blocksOf } from '../support/page.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { imageTree, reported, reporting, systemOptions, type Tool } from './debian-image.js'

// Images that others make: what a container engine exports, the layouts of other distributions, and the image
// of README. Each is packed by svcd with its own tool for the initramfs; the container's boots in a virtual
// machine.

const mac = '52:54:00:14:07:01'
const timeout = 1_800_000
const shell = (script: string, directory: string, ...args: string[]) =>
  output('sh', ['-euc', script, 'sh', directory, ...args], { timeout })

/** The kernel lies beside its modules, as in images of containers; /boot is empty. */
const besideModules =
  'cd "$1"; v=$(ls usr/lib/modules); mv boot/vmlinuz-* usr/lib/modules/$v/vmlinuz; rm -rf boot/*'

/**
 * An OCI image of a tree, unpacked again, with what an engine adds that runs it: what `docker export` gives.
 */
const container = `
${besideModules}
cd ..
umoci init --layout oci
umoci new --image oci:debian
umoci insert --image oci:debian "$1" /
umoci raw unpack --image oci:debian rootfs
cd rootfs
mkdir -p dev/pts dev/shm
: >.dockerenv; : >dev/console; : >etc/hosts; : >etc/hostname; : >etc/resolv.conf
ln -sf /proc/mounts etc/mtab
tar --numeric-owner -cf ../export.tar $(ls -A)
`

const release = (id: string) =>
  `rm -rf etc/debian_version var/lib/dpkg usr/bin/dpkg; printf 'ID=${id}\\n' >etc/os-release`

/** A kernel and modules of another version: a copy of those that are there. */
const also = (...versions: string[]) =>
  `v=$(ls usr/lib/modules)\n${versions
    .map(v => `cp -a usr/lib/modules/$v usr/lib/modules/${v}; cp boot/vmlinuz-$v boot/vmlinuz-${v}\n`)
    .join('')}rm -r usr/lib/modules/$v boot/*-$v`

const el8 = '4.18.0-553.el8_10.x86_64'
const el8Patched = '4.18.0-553.64.1.el8_10.x86_64'

/**
 * What is done to the tree of a Debian, the version that has to be packed ('' is Debian's), and the place of
 * its files.
 */
const layouts: Record<string, [change: string, version: string, kernel: RegExp, initrd: RegExp]> = {
  SUSE: [
    `${besideModules}; ln -s ../usr/lib/modules/$v/vmlinuz boot/vmlinuz-$v; ${release('opensuse-leap')}`,
    '',
    /^kernel: \/(usr\/)?(lib\/modules\/VERSION\/vmlinuz|boot\/vmlinuz-VERSION)$/m,
    /^initramfs: \/boot\/initrd-VERSION, built by dracut$/m
  ],
  'boot loader specification': [
    `${besideModules}; id=$(printf '%032d' 7); mkdir -p boot/$id/$v boot/loader/entries; mv usr/lib/modules/$v/vmlinuz boot/$id/$v/linux
    printf 'version %s\\nlinux /%s/%s/linux\\n' $v $id $v >boot/loader/entries/$id-$v.conf; ${release('fedora')}`,
    '',
    /^kernel: \/boot\/0{31}7\/VERSION\/linux$/m,
    /^initramfs: \/boot\/initramfs-VERSION\.img, built by dracut$/m
  ],
  'Enterprise Linux 8': [
    `cd "$1"; ${also(el8, el8Patched, `${el8Patched}+debug`)}; ${release('rocky')}`,
    el8Patched,
    /^kernel: \/boot\/vmlinuz-VERSION$/m,
    /^initramfs: \/boot\/initramfs-VERSION\.img, built by dracut$/m
  ]
}

t.setTimeout(2 * 3_600_000)

t.test('images that others make', async t => {
  requirePrograms('debootstrap', 'umoci', 'zstd', 'tar')
  const directory = scratch(t)
  const images = join(directory, 'images')
  await mkdir(images)
  const network = await startNetwork([{ mac, ipaddress: '10.141.0.11' }])
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  const copy = async (tool: Tool, tree: string) =>
    output('cp', ['-a', '-x', await imageTree({ tool }), tree], { timeout })
  /** Packs an image; resolves with the version of its kernel and the record of the request. */
  const pack = async (t: Test, name: string, distribution: string) => {
    await controller.create('osimage', name, { distribution, kerneloptions: systemOptions })
    const start = Date.now()
    const { status, body } = await controller.request('GET', `/config/osimage/${name}/_pack`, undefined, 1800)
    if (status !== 204) throw new Error(`${name} was not packed: ${JSON.stringify(body)}`)
    t.comment(`${name}: packed in ${((Date.now() - start) / 1000).toFixed(0)} s`)
    const { body: listed } = await controller.request('GET', '/monitor/request')
    const [id = ''] = Object.keys((listed as Listed).monitor.request)
    const { body: told } = await controller.request('GET', `/monitor/request/${id}`)
    const { body: got } = await controller.request('GET', `/config/osimage/${name}`)
    const { kernelversion } = (got as Got).config.osimage[name] ?? {}
    const lines = ((told as Listed).monitor.request[id]?.lines ?? []).join('\n')
    t.notMatch(lines, /^the image has no/m)
    return { version: kernelversion ?? '', lines }
  }

  await t.test('what docker export gives boots', async t => {
    const tree = join(directory, 'made', 'tree')
    await mkdir(join(directory, 'made'))
    await copy('initramfs-tools', tree)
    await reporting(tree)
    await shell(container, tree)
    await shell(
      'umask 022; mkdir "$1"; tar -xpf "$2" -C "$1" --numeric-owner',
      join(images, 'container'),
      join(directory, 'made/export.tar')
    )
    const { lines } = await pack(t, 'container', 'debian')
    t.match(lines, /^kernel: \/(usr\/)?lib\/modules\/\S+\/vmlinuz$/m)
    t.match(lines, /^initramfs: \/boot\/initrd\.img-\S+, built by initramfs-tools$/m)
    await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
    await controller.create('node', 'node001', {
      osimage: 'container',
      macaddr: mac,
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.11' }]
    })
    const run = await runMachine({
      ...{ name: 'node001', mac, network: { tap: network.tap(mac) }, enter: network.enter },
      ...{ memoryMiB: 2048, timeLimitMs: timeout, until: /REPORT done .*\n/ }
    })
    const about = { console: tail(run.console) }
    t.equal(reported(run.console, 'hostname'), 'node001.cluster', 'its host name', about)
    t.match(reported(run.console, 'address'), ` 10.141.0.11/24 ${mac}`, 'its address', about)
    t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
    t.match(reported(run.console, 'machine-id'), /^[0-9a-f]{32}$/, 'an id of its own', about)
    t.match(run.console, /\/\.dockerenv/, 'the mark of the container is told')
  })

  for (const [what, [change, version, kernel, initrd]] of Object.entries(layouts))
    await t.test(`the layout of ${what}`, async t => {
      const name = what.replaceAll(' ', '-').toLowerCase()
      await copy('dracut', join(images, name))
      await shell(change, join(images, name))
      const packed = await pack(t, name, 'redhat')
      const [theirs = ''] = await readdir(join(images, name, 'usr/lib/modules'))
      t.equal(packed.version, version || theirs)
      const told = packed.lines.replaceAll(packed.version, 'VERSION')
      t.match(told, kernel)
      t.match(told, initrd)
      if (version) t.match(packed.lines, /^newer: \S+\+debug, not taken because it is a debug kernel$/m)
    })

  await t.test('the image of README', async t => {
    const block = blocksOf('README.md').find(({ heading }) => heading === 'Make an image')
    const [command = ''] = /^debootstrap .*$/m.exec(block?.text ?? '') ?? []
    t.match(command, / var\/images\/debian$/)
    await writeFile(join(directory, 'command'), command.replace('var/images/debian', '"$1"'))
    await shell('. "$2"', join(images, 'readme'), join(directory, 'command'))
    const { lines } = await pack(t, 'readme', 'debian')
    t.match(lines, /^initramfs: \/boot\/initrd\.img-\S+, built by initramfs-tools$/m)
  })
})

interface Listed {
  readonly monitor: { readonly request: Record<string, { readonly lines?: readonly string[] }> }
}

interface Got {
  readonly config: { readonly osimage: Record<string, { readonly kernelversion: string | null }> }
}
