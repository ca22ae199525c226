import { chownSync, existsSync, mkdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { makeTree } from '../image/small-tree.js'
import { kernelOptions, makeImage, partscript, treeSum } from '../machine/image.js'
import { start } from '../support/child.js'
import { Daemon } from '../support/daemon.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

const mac = '52:54:00:14:07:01'
const ipaddress = '10.141.0.11'

// rules 11.12, 11.13
t.test('a controller moves to an empty machine: a node boots and installs from there', async t => {
  requirePrograms('debugfs')
  const [old, fresh, carried] = [scratch(t), scratch(t), scratch(t)]
  const source = await makeImage(join(old, 'files'), join(old, 'source'))
  const tree = makeTree(join(old, 'images/tree'))
  chownSync(join(tree, 'etc/hostname'), 1234, 5678)
  const file = join(carried, 'backup.tar')
  const settings = (directory: string) => [
    ...['paths.state=state', 'paths.files=files', 'image.directory=images'].map(key =>
      key.replace('=', `=${directory}/`)
    ),
    'http.listen=10.141.0.1:7050'
  ]
  const svcd = async (daemon: Daemon, enter: readonly string[], directory: string, ...args: string[]) => {
    const [program = '', ...words] = [...enter, join(daemon.tree, 'bin/svcd'), ...args]
    const given = ['--config', join(daemon.tree, 'etc/svcd.ini')]
    const { code, stdout, stderr } = await start(program, [
      ...[...words, ...given],
      ...settings(directory).flatMap(key => ['--set', key])
    ]).ended
    t.equal(code, 0, stderr)
    return stdout
  }

  // The machine that is left: its network, its disk and its daemon are gone afterwards.
  const first = await startNetwork([{ mac, ipaddress }])
  let left: typeof first | undefined = first
  t.teardown(() => left?.close())
  const before = await Daemon.start({ directory: old, listen: '10.141.0.1:7050', enter: first.enter })
  t.teardown(() => before.kill())
  await before.create('network', 'cluster', { network: '10.141.0.0/24' })
  await before.create('osimage', 'test', {
    ...{ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' },
    kerneloptions: kernelOptions
  })
  await before.create('group', 'compute', {
    osimage: 'test',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  await before.create('node', 'node001', {
    ...{ group: 'compute', macaddr: mac, partscript },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
  })
  await svcd(before, first.enter, old, 'backup', '--images', file)
  await before.stop()
  await first.close()
  left = undefined
  rmSync(old, { recursive: true })
  mkdirSync(old)

  const second = await startNetwork([{ mac, ipaddress }])
  t.teardown(() => second.close())
  const after = new Daemon({ directory: fresh, listen: '10.141.0.1:7050', enter: second.enter })
  t.notOk(existsSync(join(fresh, 'state')), 'the new machine is empty')
  t.match(await svcd(after, second.enter, fresh, 'restore', file), 'restored: ')
  const restored = statSync(join(fresh, 'images/tree/etc/hostname'))
  t.same([restored.uid, restored.gid], [1234, 5678], 'the tree of an image, with its owners')
  await after.start()
  t.teardown(() => after.stop())
  const disk = join(fresh, 'node001.disk')
  writeFileSync(disk, '')
  truncateSync(disk, 64 << 20)
  const run = await runMachine({
    ...{ name: 'node001', mac, network: { tap: second.tap(mac) }, enter: second.enter },
    disk
  })
  t.equal(run.exit, 0, 'the machine went off by itself', { console: tail(run.console) })
  t.equal(run.console.match(/STAGE \S+ tree (\S+)/)?.[1], source, 'the machine unpacked what was packed')
  await output('debugfs', ['-R', `rdump /usr ${fresh}`, disk])
  t.equal(await treeSum(join(fresh, 'usr')), source)
  t.equal((await after.monitor('node001')).state, 'installer.completed')
})
