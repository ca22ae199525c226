import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t from 'tap'
import { exportSiteKey, makeSiteKey, signWithSiteKey } from '../../lib/image/site-key.js'
import { busybox, packInitramfs } from '../machine/initramfs.js'
import { debianKernel } from '../support/kernel.js'
import { locate, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { type Machine, runMachine, tail } from '../support/virtual-machine.js'

// The key of a site is enrolled in the firmware of a machine, as docs/secure-boot-keys.md says. Then that
// firmware starts what svcd signed, and refuses the same without its signature.

const stub = '/usr/lib/systemd/boot/efi/linuxx64.efi.stub'

const init = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
exec >/dev/ttyS0 2>&1
export PATH=/bin
$b insmod /efivarfs.ko
$b mount -t efivarfs e /sys/firmware/efi/efivars
state() { $b cat /sys/firmware/efi/efivars/$1-8be4df61-93ca-11d2-aa0d-00e098032b8c | $b tail -c 1 | $b od -An -t u1; }
echo "STARTED setup mode $(state SetupMode), secure boot $(state SecureBoot)"
if [ $(state SetupMode) = 1 ]; then
  for name in db KEK PK; do /bin/efi-updatevar -f /$name.auth $name && echo "ENROLLED $name"; done
fi
$b poweroff -f
`

/** A kernel, its initramfs and its command line as one program of EFI. */
async function unified(directory: string, kernel: string, initrd: string, file: string): Promise<void> {
  const line = join(directory, 'cmdline')
  await writeFile(line, 'console=ttyS0 panic=-1')
  const sections = [
    ['.cmdline', line, '0x30000'],
    ['.linux', kernel, '0x2000000'],
    ['.initrd', initrd, '0x4000000']
  ].flatMap(([name, from, at]) => [
    '--add-section',
    `${name}=${from}`,
    '--change-section-vma',
    `${name}=${at}`
  ])
  await output('objcopy', [...sections, stub, file])
}

t.setTimeout(1_800_000)

// rules 15.14
t.test('a firmware with the key of the site starts what svcd signed, and nothing else', async t => {
  requirePrograms('objcopy', stub, 'efi-updatevar')
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  const [state, root, disk, settings] = ['state', 'root', 'disk', 'settings'].map(at) as [
    string,
    string,
    string,
    string
  ]
  for (const path of [
    state,
    settings,
    join(disk, 'EFI/BOOT'),
    ...['bin', 'dev', 'proc', 'sys', 'tmp'].map(one => join(root, one))
  ])
    await mkdir(path, { recursive: true })
  await makeSiteKey(state, 'head')
  await exportSiteKey(state, root)
  const kernel = await debianKernel()
  await copyFile(busybox, join(root, 'bin/busybox'))
  await copyFile(join(kernel.modules, 'fs/efivarfs/efivarfs.ko'), join(root, 'efivarfs.ko'))
  // Not busybox, whose shell would take its own mount, which knows no -l.
  await copyFile('/bin/dash', join(root, 'bin/sh'))
  // The second asks the first where efivarfs is mounted.
  for (const name of ['dash', 'mount', 'efi-updatevar']) {
    const program = locate(name) ?? ''
    await copyFile(program, join(root, 'bin', name))
    for (const [library] of (await output('ldd', [program])).matchAll(/\/\S+/g)) {
      await mkdir(dirname(join(root, library)), { recursive: true })
      await copyFile(library, join(root, library))
    }
  }
  await writeFile(join(root, 'init'), init, { mode: 0o755 })
  await packInitramfs(root, at('initrd'))
  await unified(directory, kernel.image, at('initrd'), at('linux.efi'))
  await signWithSiteKey(state, at('linux.efi'), at('signed.efi'))
  // The settings of a machine whose firmware has no keys: it is in its setup mode.
  await copyFile('/usr/share/OVMF/OVMF_VARS_4M.fd', join(settings, 'vars.fd'))
  const start = async (file: string, until: RegExp) => {
    await copyFile(at(file), join(disk, 'EFI/BOOT/BOOTX64.EFI'))
    const machine: Machine = {
      ...{
        name: file,
        mac: '52:54:00:15:14:01',
        network: { bootfile: 'none' },
        firmware: 'secure',
        settings
      },
      ...{ disk: `fat:rw:${disk}`, memoryMiB: 1024, timeLimitMs: 900_000, until }
    }
    const { console } = await runMachine(machine)
    t.comment(tail(console).slice(-6).join('\n'))
    return console
  }
  const off = /reboot: Power down/
  const enrolled = await start('linux.efi', off)
  t.match(enrolled, /STARTED setup mode +1, secure boot +0/, 'without keys an unsigned program starts')
  for (const name of ['db', 'KEK', 'PK']) t.match(enrolled, `ENROLLED ${name}`)
  const refused = await start('linux.efi', /Access Denied|STARTED/)
  t.notMatch(refused, /STARTED/, 'the same program is refused')
  t.match(await start('signed.efi', off), /STARTED setup mode +0, secure boot +1/, 'the signed one starts')
})
