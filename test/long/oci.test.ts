import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { reported, reporting, systemOptions } from './debian-image.js'
import { debianTree } from './debian-tree.js'

// rules 9.16: buildah builds the shipped Containerfile of Debian; the image is imported, packed, and boots a
// virtual machine. A quarter of an hour. Those of Ubuntu and Rocky need registries that are not reached here.

const [mac, ipaddress] = ['52:54:00:14:20:01', '10.141.0.71']
const minutes = 60_000

t.test(
  'the Containerfile of Debian is built, imported, packed and booted',
  { timeout: 60 * minutes },
  async t => {
    requirePrograms('buildah', 'skopeo', 'umoci', 'debootstrap', 'zstd')
    const directory = scratch(t)
    const at = (name: string) => join(directory, name)
    const base = await debianTree({ packages: [] })

    // A storage of its own, which needs no module of the kernel.
    const storage = ['--root', at('storage'), '--runroot', at('run'), '--storage-driver', 'vfs']
    const buildah = async (...words: string[]) =>
      (await output('buildah', [...storage, ...words], { timeout: 20 * minutes })).trim()
    const container = await buildah('from', 'scratch')
    await buildah('add', '--quiet', container, base, '/')
    await buildah('commit', '--quiet', '--rm', container, 'docker.io/library/debian:bookworm')
    const files = join(checkout, 'docs/containerfiles')
    t.strictSame(
      readdirSync(files).sort(),
      ['debian', 'rocky', 'ubuntu'].map(name => `${name}.Containerfile`)
    )
    const words = ['--quiet', '--isolation', 'chroot', '--pull-never', '--label', 'site=test']
    const file = join(files, 'debian.Containerfile')
    await buildah('build', ...words, '--file', file, '--tag', 'localhost/site/compute:1', files)
    const archive = at('compute.tar')
    await buildah('push', '--quiet', 'localhost/site/compute:1', `oci-archive:${archive}:compute`)
    await output('rm', ['-rf', '--one-file-system', at('storage')], { timeout: 10 * minutes })

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
    await reporting(at('images/compute'))
    // A machine in software may not find all its devices in the three minutes of that unit.
    const slow = at('images/compute/etc/systemd/system/ifupdown-pre.service.d')
    mkdirSync(slow)
    writeFileSync(join(slow, 'slow.conf'), '[Service]\nTimeoutSec=infinity\n')
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
    t.match((await controller.monitor('node001')).state, /^(?:installer\.completed|running)$/, about)
  }
)
