import { createHash, randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { kernelOptions, makeImage, partscript } from '../machine/image.js'
import { Daemon } from '../support/daemon.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

const mac = '52:54:00:14:00:01'

// rules 6.15
t.test(
  'a rescue leaves each byte of the disk as it is; the boot after it installs',
  { timeout: 900_000 },
  async t => {
    const directory = scratch(t)
    const source = await makeImage(join(directory, 'files'), join(directory, 'source'))
    const network = await startNetwork([{ mac, ipaddress: '10.141.0.11' }])
    t.teardown(() => network.close())
    const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
    t.teardown(() => controller.stop())
    await controller.create('network', 'cluster', { network: '10.141.0.0/24' })
    const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' }
    for (const name of ['test', 'tools'])
      await controller.create('osimage', name, { ...files, kerneloptions: kernelOptions })
    await controller.create('group', 'compute', {
      ...{
        osimage: 'test',
        partscript,
        prescript: partscript,
        interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
      }
    })
    await controller.create('node', 'node001', { group: 'compute', macaddr: mac, rescue: 'tools' })
    const disk = join(directory, 'disk')
    writeFileSync(disk, randomBytes(64 << 20))
    const sum = () => createHash('sha256').update(readFileSync(disk)).digest('hex')
    const before = sum()
    const boot = () =>
      runMachine({ name: 'node001', mac, disk, network: { tap: network.tap(mac) }, enter: network.enter })
    const rescued = async () => {
      const { body } = await controller.request('GET', '/config/node/node001')
      return (body as { config: { node: { node001: { rescue: string | null } } } }).config.node.node001.rescue
    }

    const first = await boot()
    t.match(first.console.replaceAll('\n', ''), 'booting node node001 for a rescue, in memory')
    t.equal(first.console.match(/STAGE \S+ tree (\S+)/)?.[1], source, 'the image is in memory', {
      console: tail(first.console)
    })
    t.match(first.console, /STAGE \S+ root svcroot tmpfs/)
    t.equal(sum(), before, 'the disk is as it was')
    t.equal((await controller.monitor('node001')).state, 'installer.completed: rescue')
    t.equal(await rescued(), null, 'it is over')

    await controller.request('POST', '/config/group/compute', {
      config: { group: { compute: { prescript: '' } } }
    })
    const second = await boot()
    t.match(second.console, /STAGE \S+ root \/dev\/vda ext4/, 'the boot after it', {
      console: tail(second.console)
    })
    t.not(sum(), before)
  }
)
