import { spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import type { Kernel } from '../support/kernel.js'
import { checkout, locate, output, programEnv, requirePrograms } from '../support/programs.js'

// In the order the kernel takes them: there is no depmod and no modprobe in the initramfs.
const modules = [
  'drivers/virtio/virtio_ring',
  'drivers/virtio/virtio',
  'drivers/virtio/virtio_pci_modern_dev',
  'drivers/virtio/virtio_pci_legacy_dev',
  'drivers/virtio/virtio_pci',
  'net/core/failover',
  'drivers/net/net_failover',
  'drivers/net/virtio_net',
  'drivers/block/virtio_blk'
]

/** A statically linked busybox, the only program in the initramfs. */
export const busybox = '/bin/busybox'

const nodeSide = join(checkout, 'dracut/90svc')

/**
 * Writes the test's initramfs (gzip, 2 MB) to `file`: busybox, the drivers of qemu's virtio devices, the
 * node's side of svcd as it is shipped, and an init that runs it (init.sh). `programs` of this system are
 * taken along with their libraries; one whose path ends in .so.N is a library itself.
 * @throws Error naming a missing program or module.
 */
export async function buildInitramfs(
  kernel: Kernel,
  file: string,
  programs: readonly string[] = []
): Promise<void> {
  requirePrograms(busybox, 'cpio')
  const root = await mkdtemp(join(tmpdir(), 'svcd-initramfs-'))
  try {
    for (const directory of ['bin', 'dev', 'lib/modules', 'usr/lib/svc'])
      await mkdir(join(root, directory), { recursive: true })
    const add = async (from: string, to: string, mode = 0o755) => {
      await copyFile(from, join(root, to))
      await chmod(join(root, to), mode)
    }
    await add(busybox, 'bin/busybox')
    await add(join(import.meta.dirname, 'init.sh'), 'init')
    for (const part of (await readdir(nodeSide)).filter(leaf => leaf.startsWith('svc-')))
      await add(join(nodeSide, part), `usr/lib/svc/${part}`)
    await add(join(import.meta.dirname, 'tree-sum.sh'), 'lib/tree-sum.sh')
    for (const name of programs) {
      const program = locate(name) ?? name
      const isLibrary = /\.so\.\d+$/.test(program)
      if (isLibrary) await mkdir(join(root, dirname(program)), { recursive: true })
      await add(program, isLibrary ? program : join('bin', basename(program)))
      for (const [library] of (await output('ldd', [program])).matchAll(/\/\S+/g)) {
        await mkdir(join(root, dirname(library)), { recursive: true })
        await add(library, library)
      }
    }
    await addModules(kernel, root)
    await packInitramfs(root, file)
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/**
 * Puts the drivers of qemu's virtio devices into `lib/modules` of an initramfs, with their `order`, a name a
 * line.
 */
export async function addModules(kernel: Kernel, root: string): Promise<void> {
  const directory = join(root, 'lib/modules')
  await mkdir(directory, { recursive: true })
  const names = modules.map(module => module.slice(module.lastIndexOf('/') + 1))
  for (const [i, module] of modules.entries())
    await copyFile(join(kernel.modules, `${module}.ko`), join(directory, `${names[i]}.ko`))
  await writeFile(join(directory, 'order'), `${names.join('\n')}\n`)
}

/** cpio (gzip) in the kernel's format, everything owned by root, parents before what is in them. */
export async function packInitramfs(root: string, file: string): Promise<void> {
  const cpio = spawn('cpio', ['-o', '-H', 'newc', '-R', '0:0', '--quiet'], {
    cwd: root,
    env: programEnv(),
    stdio: ['pipe', 'pipe', 'inherit']
  })
  const ended = new Promise<void>((resolve, reject) => {
    cpio.on('error', reject)
    cpio.on('close', code => (code === 0 ? resolve() : reject(new Error(`cpio ended with ${code}`))))
  })
  const entries = await readdir(root, { recursive: true })
  cpio.stdin.end(`${entries.sort().join('\n')}\n`)
  await Promise.all([pipeline(cpio.stdout, createGzip({ level: 1 }), createWriteStream(file)), ended])
}
