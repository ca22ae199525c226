import { copyFileSync, existsSync, mkdirSync } from 'node:fs'
import { rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { startDebianProxy } from '../support/debian-proxy.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

// The real installer of Debian, booted and preseeded by svcd, onto an empty disk of a machine in software.
// Then the machine boots from its disk, and its system reports that it is up. It needs apt's mirror.
// SVCD_DEBIAN_INSTALLER is the directory of another installer, with SVCD_INSTALLER_OPTIONS for its kernel.

const installer =
  process.env.SVCD_DEBIAN_INSTALLER ?? '/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64'
const options = process.env.SVCD_INSTALLER_OPTIONS ?? ''
const node = 'node001'
const mac = '52:54:00:14:0a:01'
const ipaddress = '10.141.0.11'
const hash = `$6$saltsalt$${'q'.repeat(86)}`

t.setTimeout(4 * 3_600_000)

t.test('the installer of Debian installs a node by preseed', async t => {
  if (!existsSync(installer))
    throw new Error('the installer is missing: apt-get install debian-installer-12-netboot-amd64')
  const directory = scratch(t)
  const files = join(directory, 'files')
  mkdirSync(files)
  copyFileSync(join(installer, 'linux'), join(files, 'debian-linux'))
  copyFileSync(join(installer, 'initrd.gz'), join(files, 'debian-initrd.gz'))
  const disk = join(directory, 'disk')
  await writeFile(disk, '')
  await truncate(disk, 4 * 2 ** 30)
  const network = await startNetwork([{ mac, ipaddress }])
  t.teardown(() => network.close())
  const proxy = await startDebianProxy({
    ...{ enter: network.enter, directory, address: '10.141.0.1', port: 3128 }
  })
  t.teardown(() => proxy.stop())
  const controller = await Daemon.start({
    ...{ directory, listen: '10.141.0.1:7050', enter: network.enter },
    set: [`kickstart.rootpw=${hash}`]
  })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', {
    network: '10.141.0.0/24',
    gateway: '10.141.0.1',
    ns_ip: '10.141.0.1'
  })
  await controller.create('osimage', 'debian-installer', {
    ...{ kernelfile: 'debian-linux', initrdfile: 'debian-initrd.gz', distribution: 'debian' },
    // Few words on the console, and the options after --- are those of the installed system too.
    kerneloptions: `DEBIAN_FRONTEND=text no_timer_check ${options} --- console=ttyS0`
  })
  await controller.create('node', node, {
    ...{ osimage: 'debian-installer', macaddr: mac, provision_method: 'preseed', netboot_once: true },
    variables: {
      ...{ mirror_proxy: 'http://10.141.0.1:3128', kernel_package: 'linux-image-cloud-amd64' },
      ...{ upgrade: 'none', packages: 'iproute2' }
    },
    // Answers of the installer that make it quicker: no recommended packages, a small initramfs.
    prescript: Buffer.from(
      'cat > /tmp/more << END\n' +
        'd-i base-installer/install-recommends boolean false\n' +
        'd-i base-installer/initramfs-tools/driver-policy select dep\n' +
        'd-i apt-setup/services-select multiselect\n' +
        'END\n' +
        'debconf-set-selections /tmp/more\n'
    ).toString('base64'),
    postscript: Buffer.from('#!/bin/sh\necho post > $_SYSTEMROOT/root/postscript\n').toString('base64'),
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
  })
  const boot = async (t: Test, signal?: AbortSignal) => {
    const start = Date.now()
    return runMachine({
      ...{ name: node, mac, network: { tap: network.tap(mac) }, enter: network.enter },
      ...{ disk: `${disk},cache=unsafe`, memoryMiB: 1024, timeLimitMs: 2 * 3_600_000 },
      ...(signal ? { signal } : {}),
      onLine: line => t.comment(`${((Date.now() - start) / 1000).toFixed(0)} s ${line}`)
    })
  }
  await t.test('installed onto an empty disk', async t => {
    const run = await boot(t)
    const about = { console: tail(run.console), asked: proxy.asked }
    t.equal(run.exit, 0, 'it starts anew by itself', about)
    const { state, history } = await controller.monitor(node)
    t.equal(state, 'installer.completed', 'completed', about)
    const steps = history.map(({ state }) => state).join(' ')
    t.match(steps, /started .*prescript .*partscript .*network .*postscript .*completed/)
  })
  await t.test('it boots from its disk, and its system reports that it is up', async t => {
    const off = new AbortController()
    // It is switched off by the signal, which rejects.
    const run = boot(t, off.signal).catch((error: Error) => error)
    const boots = async () => JSON.stringify(await controller.request('GET', `/monitor/node/${node}/_boots`))
    // Under load this takes longer than `until` waits; the machine has a time limit of its own.
    let isOver = false
    const ended = run.then(() => {
      isOver = true
    })
    while (!isOver && !(await boots()).includes('"step":"running"')) await sleep(2000)
    off.abort()
    await ended
    t.match(await run, /interrupted/)
    t.match(await boots(), /"step":"disk"/, 'the menu led to the disk')
    const { body } = await controller.request('GET', `/config/node/${node}`)
    t.match(JSON.stringify(body), /"_running":\{[^}]*"pack":"debian-initrd\.gz"/)
  })
  await rm(disk)
})
