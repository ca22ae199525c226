import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { kernelOptions, makeImage, partscript } from '../machine/image.js'
import { Daemon } from '../support/daemon.js'
import { freePort } from '../support/free-port.js'
import { runMachine } from '../support/virtual-machine.js'

// `make demo`: a virtual machine with an empty disk is installed by a controller of its own, without root and
// without touching anything outside a temporary directory.

const mac = '52:54:00:14:00:01'
const say = (text: string) => console.log(`\n==> ${text}`)

async function demo(directory: string, interrupted: AbortSignal): Promise<void> {
  say('Packing a small image; its kernel is the one Debian makes for virtual machines (downloaded once).')
  const sum = await makeImage(join(directory, 'files'), join(directory, 'source'))

  const port = await freePort()
  // qemu's user network needs no right. The machine is 10.0.2.15 there and reaches this computer's loopback
  // as 10.0.2.2, but what it sends arrives from 127.0.0.1: the nodes' network has to hold both addresses.
  const url = `http://10.0.2.2:${port}`
  say(`Starting svcd on 127.0.0.1:${port}, state in ${directory}/state; the machine reaches it as ${url}.`)
  const controller = await Daemon.start({
    directory,
    listen: `127.0.0.1:${port}`,
    enter: ['setpriv', '--pdeathsig', 'KILL'],
    set: [`http.url=${url}`, 'boot.dynamic_nodes=yes']
  })
  try {
    say(
      'Telling it, over its HTTP API, of a network, an OS image and a node, node001, with that MAC address.'
    )
    await controller.create('network', 'demo', {
      network: '0.0.0.0/0',
      dhcp: true,
      dhcp_range_begin: '127.0.0.1',
      dhcp_range_end: '127.0.0.1'
    })
    await controller.create('osimage', 'demo', {
      kernelfile: 'vmlinuz',
      initrdfile: 'initrd.img',
      imagefile: 'image.tar.gz',
      kerneloptions: kernelOptions
    })
    await controller.create('node', 'node001', {
      macaddr: mac,
      osimage: 'demo',
      bootmenu: true,
      partscript,
      interfaces: [{ interface: 'BOOTIF', network: 'demo', ipaddress: null }]
    })

    const disk = join(directory, 'disk')
    await writeFile(disk, '')
    await truncate(disk, 64 << 20)
    say('Switching on a machine with an empty disk. Its console, from the firmware to the power off:')
    const run = await runMachine({
      name: 'node001',
      mac,
      network: { bootfile: `${url}/boot` },
      enter: ['setpriv', '--pdeathsig', 'KILL'],
      disk,
      onLine: line => console.log(`    | ${line}`),
      signal: interrupted
    })

    const { state, reason, history } = await controller.monitor('node001')
    say(`What svcd knows of node001: ${history.map(step => step.state).join(', ')}`)
    if (state !== 'installer.completed') throw new Error(`node001 is ${state}: ${reason}`)
    if (!run.console.includes(`tree ${sum}`)) throw new Error('the disk does not hold what was packed')
    say('The disk holds what was packed, and svcd was told so. That is the whole journey of a bare machine.')
  } finally {
    await controller.stop()
  }
}

const directory = await mkdtemp(join(tmpdir(), 'svcd-demo-'))
const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort())
try {
  await demo(directory, interrupted.signal)
} catch (error) {
  console.error(`\nThe demo did not work: ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
} finally {
  await rm(directory, { recursive: true, force: true })
}
