import t from 'tap'
import { reported } from './debian-image.js'
import { type DiskNode, installedDisks } from './installed-disks.js'

// Installed disks and Secure Boot: a real Debian with shim and its signed GRUB is installed onto an empty disk
// and boots from there with Secure Boot on.

const more = `
efivars=/sys/firmware/efi/efivars
echo "REPORT secureboot $(od -An -t u1 -j 4 -N 1 $efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c)"
echo "REPORT lockdown $(cat /sys/kernel/security/lockdown)"
`
const loaders = ['shim-signed', 'grub-efi-amd64-signed']
const plain: DiskNode = {
  ...{ name: 'node001', mac: '52:54:00:14:15:01', ipaddress: '10.141.0.51', firmware: 'uefi' }
}

t.setTimeout(3 * 3_600_000)

// rules 15.15
t.test('a disk that was installed with Secure Boot off boots with Secure Boot on', async t => {
  const site = await installedDisks(t, [plain], more, loaders)
  const disk = await site.disk('disk', 6)
  await site.controller.create('disklayout', 'whole-disk', { disks: wholeDisk })
  await site.create(plain, { disklayout: 'whole-disk' })
  const installed = await site.boot(t, plain, { disk })
  t.match(installed.console, /svc: the boot loader is shim and GRUB as the image's distribution signed them/)
  await site.leaveNetwork(t, plain.name)
  const { console } = await site.boot(t, plain, { disk, firmware: 'secure' })
  t.equal(reported(console, 'secureboot'), '1', 'Secure Boot is on')
  t.match(reported(console, 'lockdown'), /\[integrity\]/, 'the kernel knows it')
  t.match(reported(console, 'root'), /^ext4 +\/dev\/vda2/)
})

const wholeDisk = [
  {
    name: 'system',
    partitions: [
      { name: 'firmware', use: 'firmware', size: '512M' },
      { name: 'root', size: 'rest', format: 'ext4', mount: '/' }
    ]
  }
]
