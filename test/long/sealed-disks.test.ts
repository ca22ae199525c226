import { chmod, copyFile, mkdir, open, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { signedLoaders } from '../support/kernel.js'
import { output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import type { Machine } from '../support/virtual-machine.js'
import { reported, systemOptions } from './debian-image.js'
import { type DiskNode, installedDisks } from './installed-disks.js'

// A real Debian on a disk whose / is encrypted, and whose key the node's TPM holds: it boots from its disk by
// itself, and neither another TPM nor the same one with Secure Boot off opens it. The recovery key does.

const node: DiskNode = {
  ...{ name: 'node001', mac: '52:54:00:14:16:01', ipaddress: '10.141.0.61', firmware: 'secure' }
}
const packages = ['shim-signed', 'grub-efi-amd64-signed', 'cryptsetup-initramfs', 'tpm2-tools']
const key = 'a recovery key of a test'
const disks = [
  {
    name: 'system',
    partitions: [
      { name: 'firmware', use: 'firmware', size: '256M' },
      { name: 'boot', size: '512M', format: 'ext4', mount: '/boot' },
      { name: 'root', size: 'rest', format: 'ext4', mount: '/', secret: 'vault', tpm: true }
    ]
  }
]
const more = `
echo "REPORT secureboot $(od -An -t u1 -j 4 -N 1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c)"
echo "REPORT key $(ls /etc/vault.key 2>&1)"
echo "REPORT slots $(cryptsetup luksDump /dev/vda3 | grep -c 'systemd-tpm2')"
`

t.setTimeout(3 * 3_600_000)

// rules 15.16
t.test('a sealed / opens on its own machine with Secure Boot on, and nowhere else', async t => {
  requirePrograms('cryptsetup')
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  const site = await installedDisks(t, [node], more, packages)
  const disk = await site.disk('disk', 6)
  await site.controller.create('disklayout', 'sealed', { disks })
  await site.create(node, { disklayout: 'sealed' })
  const secret = { name: 'vault', path: '/etc/vault.key', content: Buffer.from(key).toString('base64') }
  t.equal((await site.controller.request('POST', `/config/secrets/node/${node.name}`, [secret])).status, 201)
  for (const [name, path] of Object.entries(await signedLoaders()))
    await copyFile(path, join(site.tftp, name))
  // The TFTP server gives out what everybody may read.
  for (const [from, to] of [
    ['vmlinuz-disks', 'vmlinuz'],
    [site.initrdfile, 'initrd.img']
  ] as const) {
    await copyFile(join(site.files, from), join(site.tftp, to))
    await chmod(join(site.tftp, to), 0o644)
  }
  const words = [
    ...['root=svc', 'svc.bootproto=static', `svc.mac=${node.mac}`, `svc.ip=${node.ipaddress}/24`],
    ...['svc.url=http://10.141.0.1:7050', `svc.node=${node.name}`, `svc.hostname=${node.name}.cluster`],
    systemOptions
  ].join(' ')
  await mkdir(join(site.tftp, 'grub'))
  const commands = [`linux /vmlinuz ${words}`, 'initrd /initrd.img', 'boot', '']
  await writeFile(join(site.tftp, 'grub/grub.cfg'), commands.join('\n'))
  const boot = (machine: Pick<Machine, 'firmware' | 'tpm' | 'until'>) =>
    site.boot(t, node, { disk, ...machine })

  const installed = await boot({ tpm: at('a') })
  t.match(installed.console, /svc: the key of root is sealed to the TPM of this node/)
  t.match(reported(installed.console, 'key'), /No such file/, 'the recovery key is not on the node')
  t.equal(reported(installed.console, 'slots'), '1')
  await site.leaveNetwork(t, node.name)
  await rm(join(site.tftp, 'shimx64.efi'))

  const { console } = await boot({ tpm: at('a') })
  t.match(reported(console, 'root'), /^ext4 +\/dev\/mapper\/luks-root/)
  t.equal(reported(console, 'secureboot'), '1')
  t.notMatch(console, /recovery key|Please unlock/)

  const until = /Please unlock disk|REPORT done/
  for (const [what, machine] of [
    ['another TPM', { tpm: at('b') }],
    ['Secure Boot off', { tpm: at('a'), firmware: 'uefi' }]
  ] as const) {
    const refused = await boot({ ...machine, until })
    t.match(refused.console, /svc: the TPM does not open luks-root/, what)
    t.notMatch(refused.console, /REPORT done/, what)
  }

  const header = Buffer.alloc(20 << 20)
  const handle = await open(disk)
  // Partitions begin at a MiB, and so does the header of LUKS.
  for (let at = 0; header.toString('latin1', 0, 4) !== 'LUKS'; at += 1 << 20)
    if ((await handle.read(header, 0, header.length, at)).bytesRead === 0) throw new Error('no LUKS header')
  await handle.close()
  await writeFile(at('header'), header)
  await writeFile(at('key'), key)
  await output('cryptsetup', ['open', '--test-passphrase', '--key-file', at('key'), at('header')])
  await writeFile(at('key'), `${await readFile(at('key'), 'utf8')}x`)
  await t.rejects(output('cryptsetup', ['open', '--test-passphrase', '--key-file', at('key'), at('header')]))
})
