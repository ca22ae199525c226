import { createHash } from 'node:crypto'
import { chmod, copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { measuredBoot } from '../../lib/boot/grub/script.js'
import { kernelOptions, makeImage } from '../machine/image.js'
import { busybox } from '../machine/initramfs.js'
import { dhcpSettings } from '../services/dhcp-servers.js'
import { controlScript } from '../services/namespaces.js'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { signedLoaders } from '../support/kernel.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { onDisk } from '../support/scratch.js'
import { type Machine, runMachine, tail } from '../support/virtual-machine.js'

// Machines with Secure Boot on, Microsoft's keys and a TPM: firmware → shim → GRUB → a signed kernel of Debian
// → svcd's initramfs, all by the DHCP server and the TFTP server that svcd writes for.

const server = '10.141.0.1'
const macs = {
  node001: '52:54:00:31:00:01',
  probe: '52:54:00:31:00:02',
  ipxe: '52:54:00:31:00:03',
  unknown: '52:54:00:31:00:09'
}

/** An initramfs that prints what the TPM holds, and switches the machine off. */
async function probe(file: string, directory: string): Promise<void> {
  const root = await mkdtemp(join(directory, 'probe-'))
  for (const name of ['bin', 'proc', 'sys', 'dev']) await mkdir(join(root, name))
  await copyFile(busybox, join(root, 'bin/busybox'))
  const init = `#!/bin/busybox sh
/bin/busybox mount -t proc p /proc; /bin/busybox mount -t sysfs s /sys; /bin/busybox mount -t devtmpfs d /dev
exec >/dev/ttyS0 2>&1
for p in 8 9; do echo "PCR $p $(/bin/busybox cat /sys/class/tpm/tpm0/pcr-sha256/$p) END"; done
/bin/busybox poweroff -f
`
  await writeFile(join(root, 'init'), init)
  await chmod(join(root, 'init'), 0o755)
  await output('sh', ['-c', `cd ${root} && find . | cpio -o -H newc 2>/dev/null | gzip > ${file}`])
  await rm(root, { recursive: true })
}

const tftp = (kind: string, directory: string, namespace: string) => {
  const tree = join(directory, 'tree')
  const hpa = `in.tftpd --foreground --listen --user root --address ${server}:69 --secure ${tree}`
  const dnsmasq = `dnsmasq -k --conf-file=${directory}/tftp.conf --pid-file= --user=root --log-facility=-`
  const own = join(directory, 'tftp')
  const command = `sh -c "echo started; exec ${kind === 'dnsmasq' ? dnsmasq : hpa}"`
  const control = controlScript(own, { namespace, command, ready: 'started' })
  return [
    ...[`server=${kind}`, `directory=${tree}`, `config=${directory}/tftp.conf`, `control=${control}`],
    'gather=0s'
  ].map(setting => `tftp.${setting}`)
}

const loaders = await signedLoaders()

for (const [dhcpServer, tftpServer] of [
  ['kea', 'tftpd-hpa'],
  ['isc', 'dnsmasq']
] as const)
  t.test(`Secure Boot by ${dhcpServer} and ${tftpServer}`, async t => {
    requirePrograms('in.tftpd', 'dnsmasq', 'grub-script-check', 'swtpm')
    const directory = onDisk(t)
    await makeImage(join(directory, 'files'), join(directory, 'source'))
    await probe(join(directory, 'files/probe.img'), directory)
    await mkdir(join(directory, 'tftp'))
    const network = await startNetwork(
      Object.values(macs).map(mac => ({ mac })),
      { withoutDhcp: true }
    )
    t.teardown(() => network.close())
    const c = await Daemon.start({
      directory,
      listen: `${server}:7050`,
      enter: network.enter,
      set: [
        ...dhcpSettings(dhcpServer, { directory, namespace: network.namespace, device: 'br0' }),
        ...tftp(tftpServer, directory, network.namespace),
        ...[`controller.address=${server}`, `http.url=http://${server}:7050`, 'boot.loader=grub'],
        ...[`tftp.shim_x64=${loaders['shimx64.efi']}`, `tftp.grub_x64=${loaders['grubx64.efi']}`]
      ]
    })
    t.teardown(() => c.stop())
    await c.create('network', 'cluster', {
      ...{ network: '10.141.0.0/24', dhcp: true },
      ...{ dhcp_range_begin: '10.141.0.200', dhcp_range_end: '10.141.0.220' }
    })
    const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' }
    await c.create('osimage', 'test', { ...files, kerneloptions: kernelOptions })
    const odd = `${kernelOptions} a="b c" d$e;f ${tftpServer}`
    await c.create('osimage', 'probe', { ...files, initrdfile: 'probe.img', kerneloptions: odd })
    await c.create('group', 'compute', {
      osimage: 'test',
      interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
    })
    const nodes = Object.entries(macs).filter(([name]) => name !== 'unknown')
    for (const [i, [node, macaddr]] of nodes.entries())
      await c.create('node', node, {
        ...{ group: 'compute', macaddr, osimage: node === 'probe' ? 'probe' : 'test' },
        ...(node === 'ipxe' ? { loader: 'ipxe' } : {}),
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.1${i + 1}` }]
      })
    for (const service of ['dhcp', 'tftp'] as const) {
      await inForce(c, service, false)
      t.match(await follow(c, `/service/${service}/start`), { state: 'done' }, `${service} runs`)
      await inForce(c, service)
    }
    const run = (name: keyof typeof macs, more: Partial<Machine>) =>
      runMachine({
        ...{ name, mac: macs[name], enter: network.enter, network: { tap: network.tap(macs[name]) } },
        ...{ firmware: 'secure', memoryMiB: 1536, timeLimitMs: 600_000, tpm: join(directory, 'tpm') },
        ...more
      })

    await t.test('the computed measurements are those of the TPM', async t => {
      const { console } = await run('probe', {})
      const text = (path: string) => readFile(join(directory, 'tree', path), 'utf8')
      const node = `/grub/grub.cfg-01-${macs.probe.replaceAll(':', '-')}`
      const contents = await readdir(join(directory, 'tree/svcd'))
      const measured = measuredBoot({
        platform: 'x86_64-efi',
        ...{ server, mac: macs.probe, programs: [] },
        common: { path: '/grub/grub.cfg', text: await text('grub/grub.cfg') },
        node: { path: node, text: await text(node) },
        file: path => {
          const sha256 = path.replace('/svcd/', '')
          return contents.includes(sha256) ? { name: 'a file', sha256, program: '' } : undefined
        }
      })
      const digests = {
        8: measured.commands.map(({ text }) => createHash('sha256').update(text).digest()),
        9: measured.files.map(({ sha256 }) => Buffer.from(sha256, 'hex'))
      }
      for (const [pcr, all] of Object.entries(digests)) {
        const value = all.reduce(
          (before, digest) => createHash('sha256').update(before).update(digest).digest(),
          Buffer.alloc(32)
        )
        const shown = new RegExp(`PCR ${pcr} (\\w+) END`).exec(console)?.[1]?.toLowerCase()
        t.equal(shown, value.toString('hex'), `PCR ${pcr}`, { console: tail(console) })
      }
    })

    await t.test('a node boots its image in memory', async t => {
      const { console } = await run('node001', {})
      t.match(console, /svcd: booting node node001/, { console: tail(console) })
      t.match(console, /svc: node001 is ready/, { console: tail(console) })
      t.equal((await c.monitor('node001')).state, 'installer.completed')
    })

    await t.test('an unknown machine gets the menu', async t => {
      const { console } = await run('unknown', { until: /executed automatically in 1\ds/ })
      t.match(console, /svcd: look again/, { console: tail(console) })
      t.match(console, /Firmware setup/, { console: tail(console) })
    })

    await t.test('the firmware refuses an unsigned iPXE', async t => {
      await copyFile('/usr/lib/ipxe/ipxe.efi', join(directory, 'tree/ipxe.efi'))
      const { console } = await run('ipxe', { until: /Access Denied|Security Violation|Boot0002/i })
      t.match(console, /NBP filename is ipxe\.efi/, { console: tail(console) })
      t.match(console, /Access Denied|Security Violation/i, { console: tail(console) })
    })
  })
