import { readFileSync } from 'node:fs'
import { rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { type ProvisionNetwork, startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Firmware, runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions } from './debian-image.js'
import { documented } from './documented-packages.js'

// The scripts of docs/howto.md for two disks as one, with LVM on them: a real Debian is installed, then once
// more over what it has left, which udev assembles; then it boots from each of its disks alone. With each
// firmware.

const howto = readFileSync(new URL('../../docs/howto.md', import.meta.url), 'utf8')
const block = (begin: string) =>
  howto
    .match(/^```sh\n[\s\S]*?^```$/gm)
    ?.map(text => text.slice('```sh\n'.length, -'```'.length))
    .find(text => text.startsWith(begin)) ?? 'exit 1\n'
const mirror = block('set -e\ndisks=')
const partscript = mirror.replace(/^# For LVM .*\n/m, block('pvcreate'))

const cases: readonly { name: string; mac: string; ipaddress: string; firmware: Firmware }[] = [
  { name: 'node001', mac: '52:54:00:14:06:01', ipaddress: '10.141.0.11', firmware: 'bios' },
  { name: 'node002', mac: '52:54:00:14:06:02', ipaddress: '10.141.0.12', firmware: 'uefi' }
]

/** Tells more of the system: its arrays. */
async function telling(tree: string): Promise<void> {
  const more = '#!/bin/sh\necho "REPORT array $(grep -o "\\[[U_]*\\]" /proc/mdstat)"\n'
  await writeFile(join(tree, 'usr/local/sbin/svcd-report-more'), more, { mode: 0o755 })
}

t.setTimeout(3 * 3_600_000)

for (const { name, mac, ipaddress, firmware } of cases)
  t.test(`two disks as one, ${firmware}`, async t => {
    requirePrograms('debootstrap', 'zstd', 'tar')
    const directory = scratch(t)
    const image = await debianImage({
      ...{ tool: 'initramfs-tools', name, files: join(directory, 'files'), tree: join(directory, name) },
      packages: documented('disks', 'localinstall'),
      prepare: telling
    })
    const [one = '', two = ''] = ['one', 'two'].map(disk => join(directory, disk))
    for (const disk of [one, two]) {
      await writeFile(disk, '')
      await truncate(disk, 4 * 2 ** 30)
    }
    const boot = async (t: Test, network: ProvisionNetwork, disk: string, ...moreDisks: string[]) => {
      const start = Date.now()
      const run = await runMachine({
        ...{ name, mac, network: { tap: network.tap(mac) }, enter: network.enter, disk, moreDisks, firmware },
        ...{ memoryMiB: 2048, timeLimitMs: 3_600_000, until: /REPORT done .*\n|svc: FAILED/ },
        onLine: line => {
          if (/svc: (step|FAILED|the boot loader)/.test(line))
            t.comment(`${((Date.now() - start) / 1000).toFixed(0)} s ${line}`)
        }
      })
      const about = { console: tail(run.console) }
      t.match(reported(run.console, 'root'), /^ext4 +\/dev\/mapper\/system-root/, 'its root', about)
      t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
      return run
    }
    const network = await startNetwork([{ mac, ipaddress }])
    t.teardown(() => network.close())
    const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
    t.teardown(() => controller.stop())
    await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
    await controller.create('osimage', name, {
      ...image,
      distribution: 'debian',
      kerneloptions: systemOptions
    })
    await controller.create('node', name, {
      ...{ osimage: name, macaddr: mac, localinstall: true },
      partscript: Buffer.from(partscript).toString('base64'),
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
    })
    for (const what of ['empty disks', 'the same disks again'])
      await t.test(`installed onto ${what}`, async t => {
        const run = await boot(t, network, one, two)
        t.match(reported(run.console, 'array'), '[UU]')
        t.equal((await controller.monitor(name)).state, 'installer.completed')
      })
    const { status } = await controller.request('POST', `/config/node/${name}`, {
      config: { node: { [name]: { netboot: false } } }
    })
    t.equal(status, 204)
    for (const [what, disk] of [
      ['first', one],
      ['second', two]
    ] as const)
      await t.test(`booted from the ${what} disk alone`, async t => {
        const run = await boot(t, network, disk)
        t.notMatch(run.console, /svc: step/, 'nothing was installed')
        t.match(reported(run.console, 'array'), /_/)
      })
    for (const file of [one, two]) await rm(file)
  })
