import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { kernelOptions, makeImage } from '../machine/image.js'
import { Daemon } from '../support/daemon.js'
import { signedLoaders } from '../support/kernel.js'
import { output } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

const mac = '52:54:00:16:00:01'
const programs = ['tpm2', 'openssl', '/usr/lib/x86_64-linux-gnu/libtss2-tcti-device.so.0']

t.test('scratch', async t => {
  const directory = scratch(t)
  const tftp = join(directory, 'tftp')
  await mkdir(join(tftp, 'grub'), { recursive: true })
  await makeImage(join(directory, 'files'), join(directory, 'source'), programs)
  for (const [name, path] of Object.entries(await signedLoaders())) await copyFile(path, join(tftp, name))
  for (const name of ['vmlinuz', 'initrd.img'])
    await copyFile(join(directory, 'files', name), join(tftp, name))
  const network = await startNetwork([{ mac, ipaddress: '10.141.0.11', bootfile: 'shimx64.efi' }], { tftp })
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', dhcp: false })
  await controller.create('osimage', 'test', {
    ...{ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' },
    kerneloptions: kernelOptions
  })
  await controller.create('node', 'node001', {
    osimage: 'test',
    trust: 'report',
    macaddr: mac,
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.11' }]
  })
  const script = await output('ip', [
    ...['netns', 'exec', network.namespace, 'curl', '-s'],
    `http://10.141.0.1:7050/boot/search/mac/${mac}`
  ])
  const words = /^kernel\s+(?:--\S+\s+)*\S+ (.*)$/m.exec(script)?.[1] ?? ''
  t.comment(script)
  t.comment(words)
  await writeFile(join(tftp, 'grub/grub.cfg'), `linux /vmlinuz ${words}\ninitrd /initrd.img\nboot\n`)
  const start = Date.now()
  const run = await runMachine({
    ...{ name: 'node001', mac, network: { tap: network.tap(mac) }, enter: network.enter, firmware: 'secure' },
    ...{ tpm: join(directory, 'tpm'), memoryMiB: 1024, timeLimitMs: 400_000 },
    onLine: line => t.comment(`${Date.now() - start} ${line}`),
    until: /STAGE \S+ tree|trying again in 4 s/
  })
  t.comment(tail(run.console).join('\n'))
  t.comment(controller.log())
})
