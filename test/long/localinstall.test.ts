import { readFileSync } from 'node:fs'
import { rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { type DhcpHost, type ProvisionNetwork, startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Firmware, type Run, runMachine, tail } from '../support/virtual-machine.js'
import {
  allReported,
  type DebianImage,
  debianImage,
  reported,
  systemOptions,
  type Tool
} from './debian-image.js'
import { documented } from './documented-packages.js'
import * as selinux from './selinux.js'

// A real Debian image, once with SELinux enforcing, installed onto an empty disk by this project's own
// initramfs, then booted from there: from the menu (netboot false) and from /boot/disk, with the initramfs
// that came with the image. With each firmware.

/**
 * The one of docs/howto.md: a partition for the boot loader, by the firmware, and the rest for the system.
 */
const howto = readFileSync(new URL('../../docs/howto.md', import.meta.url), 'utf8')
const partscript = /^```sh\n(set -e\ndisk=[\s\S]*?)^```$/m.exec(howto)?.[1] ?? 'exit 1'

interface Case {
  readonly name: string
  readonly mac: string
  readonly ipaddress: string
  readonly firmware: Firmware
  readonly tool: Tool
  /** Its image enforces SELinux. */
  readonly enforces?: true
}

const cases: readonly Case[] = [
  {
    name: 'node001',
    mac: '52:54:00:14:02:01',
    ipaddress: '10.141.0.11',
    firmware: 'bios',
    tool: 'initramfs-tools'
  },
  {
    name: 'node002',
    mac: '52:54:00:14:02:02',
    ipaddress: '10.141.0.12',
    firmware: 'uefi',
    tool: 'dracut'
  },
  {
    name: 'node003',
    mac: '52:54:00:14:02:03',
    ipaddress: '10.141.0.13',
    firmware: 'bios',
    tool: 'initramfs-tools',
    enforces: true
  },
  {
    name: 'node004',
    mac: '52:54:00:14:02:04',
    ipaddress: '10.141.0.14',
    firmware: 'bios',
    tool: 'dracut'
  }
]

const marks: Readonly<Record<string, RegExp>> = {
  'install script': /svc: running the install script/,
  partscript: /svc: step partscript/,
  unpacking: /svc: step unpack/,
  'boot loader': /svc: step bootloader/,
  completed: /svc: step completed/,
  'disk script': /svcd: booting from the local disk/,
  'system is up': /REPORT done/
}

/** Changes the tree of an image: it enforces SELinux, and tells so. */
async function enforcing(tree: string): Promise<void> {
  await selinux.enforce(tree)
  const more = `#!/bin/sh\n{${selinux.asks}\n} 2>&1 | sed 's/^/REPORT /'\n`
  await writeFile(join(tree, 'usr/local/sbin/svcd-report-more'), more, { mode: 0o755 })
}

t.setTimeout(3 * 3_600_000)

t.test('a real Debian is installed onto a disk and boots from it', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const files = join(directory, 'files')
  const images = new Map<string, DebianImage>()
  const packages = documented('disks', 'localinstall')
  for (const { name, tool, enforces } of cases) {
    const more = enforces ? selinux.packages : []
    const image = { tool, name, files, tree: join(directory, name), packages: [...packages, ...more] }
    images.set(name, await debianImage({ ...image, ...(enforces ? { prepare: enforcing } : {}) }))
  }
  for (const { name } of cases) {
    await writeFile(join(directory, `${name}.disk`), '')
    await truncate(join(directory, `${name}.disk`), 3 * 2 ** 30)
  }

  /** Runs a node until the system that it boots has said what it is. */
  const boot = async (t: Test, network: ProvisionNetwork, node: Case): Promise<Run> => {
    const start = Date.now()
    const times = new Map<string, string>()
    const run = await runMachine({
      name: node.name,
      mac: node.mac,
      network: { tap: network.tap(node.mac) },
      enter: network.enter,
      disk: join(directory, `${node.name}.disk`),
      firmware: node.firmware,
      memoryMiB: 2048,
      timeLimitMs: 1_800_000,
      until: /REPORT done .*\n/,
      onLine: line => {
        for (const [what, mark] of Object.entries(marks))
          if (!times.has(what) && mark.test(line))
            times.set(what, `${what} ${((Date.now() - start) / 1000).toFixed(1)} s`)
      }
    })
    t.comment([node.firmware, node.tool, ...times.values()].join(', '))
    const about = { console: tail(run.console) }
    t.equal(reported(run.console, 'hostname'), `${node.name}.cluster`, 'its host name', about)
    t.match(reported(run.console, 'address'), ` ${node.ipaddress}/24 ${node.mac}`, 'its address', about)
    t.match(reported(run.console, 'root'), /^ext4 +\/dev\/vda2/, 'its root file system is on the disk', about)
    t.match(reported(run.console, 'route'), /^default via 10\.141\.0\.1 /, 'one default route', about)
    t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
    if (node.enforces) selinux.enforces(t, word => allReported(run.console, word), about)
    return run
  }
  /** The network and the controller, with the DHCP entries that nodes have by their flags. */
  const controlled = async (
    t: Test,
    bootfile: string | undefined,
    work: (network: ProvisionNetwork, controller: Daemon) => Promise<void>
  ) => {
    const hosts = cases.map(
      ({ mac, ipaddress }): DhcpHost => ({ mac, ipaddress, ...(bootfile ? { bootfile } : {}) })
    )
    const network = await startNetwork(hosts)
    try {
      const controller = await Daemon.start({
        directory,
        listen: '10.141.0.1:7050',
        enter: network.enter
      })
      try {
        await work(network, controller)
      } finally {
        await controller.stop()
        // The next one is built anew, on the same state.
        await rm(join(directory, 'svcd'), { recursive: true })
      }
    } finally {
      await network.close()
    }
    t.pass('the controller is done')
  }

  await controlled(t, undefined, async (network, controller) => {
    await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
    for (const node of cases) {
      const { name, mac, ipaddress, enforces } = node
      await controller.create('osimage', name, {
        ...images.get(name),
        distribution: 'debian',
        kerneloptions: enforces ? `${systemOptions} ${selinux.kernelOptions}` : systemOptions
      })
      await controller.create('node', name, {
        osimage: name,
        macaddr: mac,
        localinstall: true,
        partscript: Buffer.from(partscript).toString('base64'),
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
      })
      await t.test(`${name}, ${node.firmware}: an empty disk is installed`, async t => {
        const run = await boot(t, network, node)
        t.match(
          run.console,
          /svc: step bootloader[\s\S]*the initramfs of kernel \S+ is the one that came with the image/
        )
        t.equal((await controller.monitor(name)).state, 'installer.completed')
      })
      await t.test(`${name}, ${node.firmware}: netboot false, the menu leads to the disk`, async t => {
        const { status } = await controller.request('POST', `/config/node/${name}`, {
          config: { node: { [name]: { netboot: false } } }
        })
        t.equal(status, 204)
        const run = await boot(t, network, node)
        t.match(run.console, /\/boot\/search\/mac\/[\s\S]*booting from the local disk/)
        t.notMatch(run.console, /svc: /, 'nothing was installed')
      })
    }
  })
  await controlled(t, 'http://10.141.0.1:7050/boot/disk', async network => {
    for (const node of cases)
      await t.test(`${node.name}, ${node.firmware}: /boot/disk boots the disk`, async t => {
        const run = await boot(t, network, node)
        t.match(run.console, /\/boot\/disk\.\.\.[\s\S]*booting from the local disk/)
        t.notMatch(run.console, /svc: /, 'nothing was installed')
      })
  })
  for (const { name } of cases) await rm(join(directory, `${name}.disk`))
})
