import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { resolveInside } from '../disk/open-directory.js'
import { file } from '../model/field.js'
import { isFileName } from '../model/names.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'

/** What a `kernel` request asks for, by the names of files in the image. What is absent is left to be chosen. */
export interface KernelWish {
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly kernelversion?: string
}

/** A request without the values that the image has already. */
export function newWish(image: OsimageDoc, wish: KernelWish): KernelWish {
  const entries = Object.entries(wish).filter(([key, value]) => value !== image[key as keyof KernelWish])
  return Object.fromEntries(entries)
}

/** The path below the tree of the kernel that a request asks for; undefined where the image has no such kernel. */
export async function wantedKernel(tree: string, wish: KernelWish): Promise<string | undefined> {
  if (wish.kernelfile !== undefined) return namedFile(tree, wish.kernelfile)
  const path = ofVersion(wish.kernelversion)
  return path && fileIn(tree, path)
}

/** Where kernels are. What is copied is served to anyone, so a link that leads elsewhere is not followed. */
const home = /^(?:boot|(?:usr\/)?lib\/modules)\/./

/** The path of a boot file below the tree, with no link left; undefined where there is no such regular file. */
async function fileIn(tree: string, path: string): Promise<string | undefined> {
  const found = await resolveInside(tree, path)
  if (found === undefined || !home.test(found)) return undefined
  return (await stat(join(tree, found)).catch(() => undefined))?.isFile() ? found : undefined
}

/** A kernel or an initramfs as an admin names it: a file below /boot, or a link to one at the root as in Debian. */
export const namedFile = async (tree: string, name: string): Promise<string | undefined> =>
  (await fileIn(tree, `boot/${name}`)) ?? (await fileIn(tree, name))

/** `vmlinuz-6.1.0` → `6.1.0`. */
export const versionOf = (path: string): string | undefined => /^vmlinuz-(.+)$/.exec(basename(path))?.[1]

/** Whether an image has the modules of a kernel version. */
export async function hasModules(tree: string, version: string): Promise<boolean> {
  if (ofVersion(version) === undefined) return false
  const found = (home: string) => resolveInside(tree, `${home}/${version}`)
  return ((await found('lib/modules')) ?? (await found('usr/lib/modules'))) !== undefined
}

/** Names that Debian, Red Hat and SUSE give the initramfs of a kernel. */
const initrdNames = (version: string) => [
  `initrd.img-${version}`,
  `initramfs-${version}.img`,
  `initrd-${version}`
]

/** The name of a file right below /boot, by which it is found again; undefined for a file elsewhere. */
export const belowBoot = (path: string) =>
  dirname(path) === 'boot' && isStorable(basename(path)) ? basename(path) : undefined

/** Whether a pack can be stored with a file of this name. */
function isStorable(name: string): boolean {
  try {
    return file.read(name) === name
  } catch {
    return false
  }
}

/**
 * Which kernel an image boots: the one asked for, the one it had (by the name it had in the tree, as its pack says, or
 * as the admin gave it), that of its kernel version, or the newest in /boot. `kept`: the admin's own file in the files
 * directory, which is not in the tree. Undefined: there is none.
 */
export async function chooseKernel(
  tree: string,
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelWish,
  isOwnFile: (name: string) => Promise<boolean>
): Promise<string | 'kept' | undefined> {
  if (wish.kernelfile !== undefined || wish.kernelversion !== undefined) return wantedKernel(tree, wish)
  const version = ofVersion(image.kernelversion)
  const recorded = pack?.kernel
  if (recorded !== undefined) {
    const packed = pack?.kernelversion ?? versionOf(recorded) ?? image.kernelversion
    // A version that was changed since the last pack is a wish for another kernel.
    const changed = image.kernelversion === packed ? undefined : version
    for (const path of [changed, `boot/${recorded}`]) {
      const file = path && (await fileIn(tree, path))
      if (file) return file
    }
  }
  const named = image.kernelfile === undefined ? undefined : await namedFile(tree, image.kernelfile)
  if (named !== undefined) return named
  if (image.kernelfile !== undefined && (await isOwnFile(image.kernelfile))) return 'kept'
  return (version && (await fileIn(tree, version))) || newestKernel(tree)
}

/** The path of the kernel of a version; undefined for a text that cannot be a version. */
const ofVersion = (version: string | undefined) =>
  version !== undefined && isFileName(`vmlinuz-${version}`) ? `boot/vmlinuz-${version}` : undefined

/** The names of the kernels in /boot, the newest first. Rescue kernels are left out. */
export async function kernelsIn(tree: string): Promise<string[]> {
  const boot = await resolveInside(tree, 'boot')
  if (boot === undefined) return []
  return (await readdir(join(tree, boot)).catch(() => []))
    .filter(name => /^vmlinuz/.test(name) && isFileName(name) && !/rescue|\.old$/.test(name))
    .sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))
}

/** The newest kernel by version: `vmlinuz-6.1.0-10` is newer than `vmlinuz-6.1.0-9`. */
async function newestKernel(tree: string): Promise<string | undefined> {
  for (const name of await kernelsIn(tree)) {
    const file = await fileIn(tree, `boot/${name}`)
    if (file !== undefined) return file
  }
  return undefined
}

/**
 * Which initramfs goes with a kernel of the tree: the one asked for, the one the image had, or the one of that version.
 * A name that no tool gives is the admin's choice. It is `chosen`, and not built anew.
 */
export async function chooseInitrd(
  tree: string,
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelWish,
  version: string | undefined,
  isOwnFile: (name: string) => Promise<boolean>
): Promise<{ path: string; chosen: boolean } | 'kept' | undefined> {
  const usual = version === undefined ? [] : initrdNames(version)
  const own = (path: string) => ({ path, chosen: !usual.includes(basename(path)) })
  if (wish.initrdfile !== undefined) {
    const path = await namedFile(tree, wish.initrdfile)
    return path === undefined ? undefined : own(path)
  }
  const recorded = pack?.initrd
  // What a tool made for another kernel does not go with this one.
  const suits = (name: string) => usual.includes(name) || !isToolName(name)
  if (recorded !== undefined && suits(recorded)) {
    const path = await fileIn(tree, `boot/${recorded}`)
    if (path !== undefined) return own(path)
  }
  if (image.initrdfile !== undefined && recorded === undefined) {
    const path = await namedFile(tree, image.initrdfile)
    if (path !== undefined && suits(basename(path))) return own(path)
    if (path === undefined && (await isOwnFile(image.initrdfile))) return 'kept'
  }
  for (const name of usual) {
    const path = await fileIn(tree, `boot/${name}`)
    if (path !== undefined) return { path, chosen: false }
  }
  return undefined
}

const isToolName = (name: string) => /^initrd\.img-|^initramfs-.*\.img$|^initrd-/.test(name)
