import { randomBytes } from 'node:crypto'
import { chmod, chown, copyFile, link, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { debianKernel } from '../support/kernel.js'
import { output } from '../support/programs.js'
import { buildInitramfs, busybox } from './initramfs.js'

/**
 * Kernel options for a machine in software: messages on the serial port, a panic ends the machine, and no
 * panic because a busy host let the timer's self-test run late.
 */
export const kernelOptions = 'console=ttyS0 quiet panic=-1 no_timer_check'

/** The same without the guards against spying processes, which take a fifth of such a machine's time. */
export const fasterOptions = `${kernelOptions} mitigations=off`

/** A part script that puts the root file system on the machine's disk. */
export const partscript = Buffer.from(
  `mke2fs -L root /dev/vda >/dev/null
mkdir -p /sysroot
mount -t ext4 /dev/vda /sysroot
`
).toString('base64')

/** Checksum of a tree, as a machine under test prints it (tree-sum.sh). */
export const treeSum = async (directory: string): Promise<string> =>
  (await output(busybox, ['sh', join(import.meta.dirname, 'tree-sum.sh'), directory])).trim()

/**
 * Writes `vmlinuz`, `initrd.img` and `image.tar.gz` to `files`. The image is made of what goes wrong when an
 * unpacker is careless: names with blanks and UTF-8, links of both kinds, modes, owners (as root), an
 * empty directory, a file of 8 MB, or of as many bytes as `size` says.
 * `programs`: see buildInitramfs.
 * @returns the checksum of the image's `usr`, which an installation leaves as it is.
 */
export async function makeImage(
  files: string,
  root: string,
  programs: readonly string[] = [],
  size = 8 << 20
): Promise<string> {
  const kernel = await debianKernel()
  await mkdir(files, { recursive: true })
  await copyFile(kernel.image, join(files, 'vmlinuz'))
  await buildInitramfs(kernel, join(files, 'initrd.img'), programs)
  for (const directory of ['etc', 'root', 'tmp', 'usr/bin', 'usr/share/empty', 'usr/share/größe und maß'])
    await mkdir(join(root, directory), { recursive: true })
  const put = (path: string, content: string | Buffer) => writeFile(join(root, path), content)
  await put('etc/os-release', 'ID=test\nPRETTY_NAME="Image of the machine test"\n')
  await put('etc/hosts', '127.0.0.1 localhost\n')
  await put('usr/share/größe und maß/$(reboot) "quoted"', 'a name to be taken as it is\n')
  await put('usr/share/data', randomBytes(size))
  await put('usr/bin/tool', '#!/bin/sh\necho tool\n')
  await chmod(join(root, 'usr/bin/tool'), 0o750)
  await chmod(join(root, 'usr/share/empty'), 0o711)
  await link(join(root, 'usr/bin/tool'), join(root, 'usr/bin/same-tool'))
  await symlink('../share/data', join(root, 'usr/bin/relative'))
  await symlink('/nowhere', join(root, 'usr/bin/dangling'))
  if (process.getuid?.() === 0) await chown(join(root, 'usr/share/data'), 1234, 5678)
  await output('tar', ['--numeric-owner', '-C', root, '-czf', join(files, 'image.tar.gz'), '.'])
  return treeSum(join(root, 'usr'))
}
