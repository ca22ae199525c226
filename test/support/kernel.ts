import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { checkout, output, requirePrograms } from './programs.js'

/** A kernel unpacked from its Debian package. */
export interface Kernel {
  /** As `uname -r` says it. */
  readonly version: string
  /** Path of the bzImage. */
  readonly image: string
  /** Directory of the modules: `lib/modules/<version>/kernel`. */
  readonly modules: string
}

const prefix = /^linux-image-(\d.*)$/

async function cached(cache: string): Promise<Kernel | undefined> {
  const name = (await readdir(cache))
    .filter(entry => prefix.test(entry))
    .sort()
    .at(-1)
  const version = name?.match(prefix)?.[1]
  if (!name || !version) return undefined
  const root = join(cache, name)
  return {
    version,
    image: join(root, `boot/vmlinuz-${version}`),
    modules: join(root, `lib/modules/${version}/kernel`)
  }
}

/**
 * One of Debian's kernels, by default the one for virtual machines, downloaded and unpacked below `cache`
 * (106 MB; 400 for the one with every driver), not installed. One that is there is used as it is; works
 * without root; two at once are safe, because a finished tree is moved into place whole.
 * @throws Error naming the command to type when apt does not know the package or cannot fetch it.
 */
export async function debianKernel(
  cache = join(checkout, '.cache/kernel'),
  metaPackage = 'linux-image-cloud-amd64'
): Promise<Kernel> {
  await mkdir(cache, { recursive: true })
  const there = await cached(cache)
  if (there) return there
  requirePrograms('apt-cache')
  const depends = await output('apt-cache', ['depends', metaPackage]).catch(() => '')
  const name = depends.match(/Depends: (linux-image-\S+)/)?.[1]
  if (!name) throw new Error(`apt knows no ${metaPackage}; type, as root: apt-get update`)
  await unpacked(name, cache)
  const kernel = await cached(cache)
  if (!kernel) throw new Error(`${name} holds no kernel`)
  return kernel
}

/** The loaders of Secure Boot from Debian's packages, by the names that they have in a TFTP tree: paths. */
export type SignedLoaders = Record<'shimx64.efi' | 'grubx64.efi' | 'mmx64.efi', string>

/**
 * Shim, its MokManager and the GRUB that boots from the network, signed, unpacked below `cache` as
 * `debianKernel` does.
 * @throws Error as `unpacked` does.
 */
export async function signedLoaders(cache = join(checkout, '.cache/loaders')): Promise<SignedLoaders> {
  const of = async (name: string, path: string) => join(await unpacked(name, cache), path)
  return {
    'shimx64.efi': await of('shim-signed', 'usr/lib/shim/shimx64.efi.signed'),
    'grubx64.efi': await of('grub-efi-amd64-signed', 'usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed'),
    'mmx64.efi': await of('shim-helpers-amd64-signed', 'usr/lib/shim/mmx64.efi.signed')
  }
}

/**
 * Downloads a Debian package and unpacks it as `<cache>/<name>`, not installed; one that is there is used as
 * it is. Returns that path.
 * @throws Error naming the command to type when apt cannot fetch it.
 */
export async function unpacked(name: string, cache: string): Promise<string> {
  const tree = join(cache, name)
  if (existsSync(tree)) return tree
  requirePrograms('apt-get', 'dpkg')
  await mkdir(cache, { recursive: true })
  const work = await mkdtemp(join(cache, '.partial-'))
  try {
    await output('apt-get', ['download', name], { cwd: work }).catch(error => {
      throw new Error(`${error.message}\nThe package lists may be old; type, as root: apt-get update`)
    })
    const file = (await readdir(work)).find(entry => entry.endsWith('.deb'))
    if (!file) throw new Error(`apt-get download ${name} left no .deb`)
    await output('dpkg', ['-x', join(work, file), join(work, 'tree')])
    await rename(join(work, 'tree'), tree).catch(error => {
      // Another run was first: its tree is the same.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
  return tree
}
