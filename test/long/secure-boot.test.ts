import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { buildInitramfs } from '../machine/initramfs.js'
import { debianKernel, signedLoaders } from '../support/kernel.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

// A machine with Secure Boot on boots over the network: firmware → shim → GRUB → a kernel of Debian.

const mac = '52:54:00:15:00:01'

t.test('The firmware starts shim, which starts GRUB, which starts a signed kernel', async t => {
  const directory = scratch(t)
  const kernel = await debianKernel()
  for (const [name, path] of Object.entries(await signedLoaders()))
    await copyFile(path, join(directory, name))
  await copyFile(kernel.image, join(directory, 'vmlinuz'))
  await buildInitramfs(kernel, join(directory, 'initrd.img'))
  const commands = ['linux /vmlinuz console=ttyS0 panic=-1', 'initrd /initrd.img', 'boot', '']
  await mkdir(join(directory, 'grub'))
  await writeFile(join(directory, 'grub/grub.cfg'), commands.join('\n'))
  const hosts = [{ mac, ipaddress: '10.141.0.11', bootfile: 'shimx64.efi' }]
  const network = await startNetwork(hosts, { tftp: directory })
  t.teardown(() => network.close())
  const machine = { name: 'node001', mac, network: { tap: network.tap(mac) }, enter: network.enter }
  const { console } = await runMachine({
    ...machine,
    firmware: 'secure',
    tpm: join(directory, 'tpm'),
    memoryMiB: 1024,
    until: /svc:|Kernel panic/
  })
  t.match(console, /secureboot: Secure boot enabled/i, { console: tail(console) })
})
