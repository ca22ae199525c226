import { mkdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Firmware, type Machine, type Run, runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions } from './debian-image.js'
import { documented } from './documented-packages.js'

/** A machine that is installed onto its disks. */
export interface DiskNode {
  readonly name: string
  readonly mac: string
  readonly ipaddress: string
  readonly firmware: Firmware
}

export interface InstalledDisks {
  readonly controller: Daemon
  /** Directory of the TFTP server. */
  readonly tftp: string
  /** The controller's files directory. */
  readonly files: string
  /** The initramfs of the image, in it. */
  readonly initrdfile: string
  /** Makes a node of a machine, with the fields that install it. */
  readonly create: (node: DiskNode, fields: object) => Promise<void>
  /** Makes an empty disk; returns its file. */
  readonly disk: (name: string, gibibytes: number) => Promise<string>
  /** Runs a node until its system has said what it is (or `until`), and no unit of it has failed. */
  readonly boot: (
    t: Test,
    node: DiskNode,
    machine: Pick<Machine, 'disk' | 'moreDisks' | 'nvmeDisks' | 'firmware' | 'tpm' | 'settings' | 'until'>
  ) => Promise<Run>
  /** The node boots from its disk from now on. */
  readonly leaveNetwork: (t: Test, name: string) => Promise<void>
}

/**
 * A controller, a network and a real Debian image with the programs of disks and boot loaders; `more` is a
 * script whose lines the booted system reports too, `packages` are in the image besides.
 */
export async function installedDisks(
  t: Test,
  nodes: readonly DiskNode[],
  more: string,
  packages: readonly string[] = []
): Promise<InstalledDisks> {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const image = await debianImage({
    ...{
      tool: 'initramfs-tools',
      name: 'disks',
      files: join(directory, 'files'),
      tree: join(directory, 'tree')
    },
    // docs/disk-layouts.md names the last two.
    packages: [...documented('disks', 'localinstall'), 'btrfs-progs', 'cryptsetup', ...packages],
    prepare: tree =>
      writeFile(join(tree, 'usr/local/sbin/svcd-report-more'), `#!/bin/sh\n${more}`, { mode: 0o755 })
  })
  // A secure machine asks by PXE for shim, where the test has put it; others have iPXE in their cards.
  const tftp = join(directory, 'tftp')
  await mkdir(tftp)
  const secure = { bootfile: 'shimx64.efi' }
  const network = await startNetwork(
    nodes.map(({ mac, ipaddress, firmware }) => ({
      mac,
      ipaddress,
      ...(firmware === 'secure' ? secure : {})
    })),
    { tftp }
  )
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('osimage', 'disks', {
    ...image,
    distribution: 'debian',
    kerneloptions: systemOptions
  })
  return {
    controller,
    tftp,
    files: join(directory, 'files'),
    initrdfile: image.initrdfile,
    create: async ({ name, mac, ipaddress }, fields) => {
      await controller.create('node', name, {
        ...{ osimage: 'disks', macaddr: mac, localinstall: true, ...fields },
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
      })
    },
    disk: async (name, gibibytes) => {
      const file = join(directory, name)
      await writeFile(file, '')
      await truncate(file, gibibytes * 2 ** 30)
      return file
    },
    boot: async (t, { name, mac, firmware }, machine) => {
      const start = Date.now()
      const run = await runMachine({
        ...{ name, mac, network: { tap: network.tap(mac) }, enter: network.enter, firmware },
        ...{ memoryMiB: 2048, timeLimitMs: 3_600_000, until: /REPORT done .*\n|svc: FAILED/ },
        ...machine,
        onLine: line => {
          if (/svc: (step|FAILED|the boot loader)|REPORT/.test(line))
            t.comment(`${((Date.now() - start) / 1000).toFixed(0)} s ${line}`)
        }
      })
      if (machine.until === undefined)
        t.equal(reported(run.console, 'state'), 'running', 'no unit failed', { console: tail(run.console) })
      return run
    },
    leaveNetwork: async (t, name) => {
      const fields = { config: { node: { [name]: { netboot: false } } } }
      t.equal((await controller.request('POST', `/config/node/${name}`, fields)).status, 204)
    }
  }
}
