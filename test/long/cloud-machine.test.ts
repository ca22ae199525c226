import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions } from './debian-image.js'

// A virtual machine boots an image of svcd with Debian's cloud-init, which reads its seed from svcd by the
// kernel options that iPXE passes on. Some three minutes.

const mac = '52:54:00:14:0c:01'
const ipaddress = '10.141.0.11'

/** Reports on the console how cloud-init has ended. */
const waits = `#!/bin/sh
timeout 300 cloud-init status --wait >/dev/null
echo "REPORT cloud $(cloud-init status)"
echo "REPORT instance $(cat /var/lib/cloud/data/instance-id)"
echo "REPORT source $(cat /var/lib/cloud/instance/datasource)"
echo "REPORT key $(cat /root/.ssh/authorized_keys)"
echo "REPORT zone $(cat /etc/timezone)"
`

t.setTimeout(3_600_000)

// rules 4.40
t.test('cloud-init of a machine that svcd boots reads the seed of its node', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const network = await startNetwork([{ mac, ipaddress }])
  t.teardown(() => network.close())
  const { enter } = network
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  const image = await debianImage({
    ...{ tool: 'initramfs-tools', files: join(directory, 'files'), tree: join(directory, 'tree') },
    packages: ['cloud-init'],
    async prepare(tree) {
      const file = join(tree, 'usr/local/sbin/svcd-report-more')
      await writeFile(file, waits)
      await chmod(file, 0o755)
    }
  })
  // As docs/installers.md has it.
  const seed = 'ds=nocloud-net;s=http://10.141.0.1:7050/boot/cloud-init/node001/'
  await controller.create('osimage', 'cloud', {
    ...image,
    distribution: 'debian',
    kerneloptions: `${systemOptions} ${seed}`
  })
  await controller.create('node', 'node001', {
    ...{ osimage: 'cloud', macaddr: mac, variables: { timezone: 'Europe/Berlin' } },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
  })
  const content = Buffer.from('ssh-ed25519 AAAA me\n').toString('base64')
  const key = { name: 'key', path: '/root/.ssh/authorized_keys', content }
  await controller.request('POST', '/config/secrets/node/node001', [key])
  const run = await runMachine({
    ...{ name: 'node001', mac, network: { tap: network.tap(mac) }, enter },
    ...{ memoryMiB: 2048, timeLimitMs: 1_200_000, until: /REPORT done .*\n/ }
  })
  const about = { console: tail(run.console) }
  t.equal(reported(run.console, 'cloud'), 'status: done', 'cloud-init has ended well', about)
  t.match(reported(run.console, 'source'), /NoCloudNet.*10\.141\.0\.1/, 'its seed is svcd', about)
  t.match(reported(run.console, 'instance'), /^node001-/, 'its instance', about)
  t.equal(reported(run.console, 'key'), 'ssh-ed25519 AAAA me', 'the secret of the node', about)
  t.equal(reported(run.console, 'zone'), 'Europe/Berlin', 'its variable', about)
  t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
})
