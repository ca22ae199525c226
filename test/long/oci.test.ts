import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { imageTree, reported, reporting, systemOptions } from './debian-image.js'

// rules 9.16: a container image that buildah built is imported, packed, and boots a virtual machine. Ten minutes.

const [mac, ipaddress] = ['52:54:00:14:20:01', '10.141.0.71']
const minutes = 60_000

t.test('an image of buildah is imported, packed and booted', { timeout: 60 * minutes }, async t => {
  requirePrograms('buildah', 'skopeo', 'umoci', 'debootstrap', 'zstd')
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  const tree = at('tree')
  const copied = { timeout: 10 * minutes }
  await output('cp', ['-a', '-x', await imageTree({ tool: 'initramfs-tools' }), tree], copied)
  await reporting(tree)

  // A storage of its own, which needs no module of the kernel.
  const storage = ['--root', at('storage'), '--runroot', at('run'), '--storage-driver', 'vfs']
  const buildah = async (...words: string[]) =>
    (await output('buildah', [...storage, ...words], { timeout: 20 * minutes })).trim()
  const container = await buildah('from', 'scratch')
  await buildah('add', container, tree, '/')
  await buildah('config', '--label', 'site=test', container)
  const archive = at('compute.tar')
  await buildah('commit', '--rm', container, `oci-archive:${archive}:compute`)
  await output('rm', ['-rf', '--one-file-system', at('storage'), tree], copied)

  const network = await startNetwork([{ mac, ipaddress }])
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  const image = '/config/osimage/compute'
  const source = { config: { osimage: { compute: { source: `oci-archive:${archive}:compute` } } } }
  const imported = await controller.request('POST', `${image}/_import`, source, 20 * 60)
  t.equal(imported.status, 201, JSON.stringify(imported.body))
  const { body } = await controller.request('GET', image)
  const shown = (body as { config: { osimage: Record<string, Record<string, unknown>> } }).config.osimage
    .compute
  t.match(shown, {
    distribution: 'debian',
    osrelease: '12',
    _source: { reference: source.config.osimage.compute.source, labels: { site: 'test' } }
  })
  t.notMatch(controller.log(), 'cannot boot yet')
  const options = { config: { osimage: { compute: { kerneloptions: systemOptions } } } }
  t.equal((await controller.request('POST', image, options)).status, 204)
  const packed = await controller.request('GET', `${image}/_pack`, undefined, 20 * 60)
  t.equal(packed.status, 204, JSON.stringify(packed.body))

  const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
  await controller.create('node', 'node001', { osimage: 'compute', macaddr: mac, interfaces })
  const run = await runMachine({
    ...{ name: 'node001', mac, network: { tap: network.tap(mac) }, enter: network.enter },
    ...{ memoryMiB: 3072, timeLimitMs: 30 * minutes, until: /REPORT done/ }
  })
  const about = { console: tail(run.console) }
  t.match(reported(run.console, 'hostname'), /^node001\.cluster$/, about)
  t.match(reported(run.console, 'root'), /^tmpfs/, about)
  t.match(reported(run.console, 'state'), /^running/, about)
  t.equal((await controller.monitor('node001')).state, 'installer.completed', about)
})
