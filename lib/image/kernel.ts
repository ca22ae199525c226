import { basename, dirname } from 'node:path'
import { file } from '../model/field.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'
import { fileIn, kernelsIn, versionOf } from './kernels.js'

/** The fields of a `kernel` request, as names of files in the image. svcd chooses absent ones. */
export interface KernelRequest {
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly kernelversion?: string
}

/** Returns a request without the values that the image already has. */
export function newKernelRequest(image: OsimageDoc, wish: KernelRequest): KernelRequest {
  const entries = Object.entries(wish).filter(([key, value]) => value !== image[key as keyof KernelRequest])
  return Object.fromEntries(entries)
}

/** Returns the path of a requested kernel below the tree; undefined where the image has no such kernel. */
export async function wantedKernel(tree: string, wish: KernelRequest): Promise<string | undefined> {
  if (wish.kernelfile !== undefined) return namedFile(tree, wish.kernelfile)
  return ofVersion(tree, wish.kernelversion)
}

/** Finds a file as an admin names it: below /boot, or a link at the root as in Debian. */
export const namedFile = async (tree: string, name: string): Promise<string | undefined> =>
  (await fileIn(tree, `boot/${name}`)) ?? (await fileIn(tree, name))

/** Names that Debian, Red Hat, SUSE and Alpine give the initramfs of a kernel. */
const initrdNames = (version: string) => [
  `initrd.img-${version}`,
  `initramfs-${version}.img`,
  `initrd-${version}`,
  `initramfs-${version}`
]

/** Returns the name of a file right below /boot; undefined for any other file. */
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
 * Returns the kernel that an image boots: the requested one, the one it had, that of its version, or the
 * newest in /boot. `kept`: the admin's own file in the files directory. Undefined: there is none.
 */
export async function chooseKernel(
  tree: string,
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelRequest,
  isOwnFile: (name: string) => Promise<boolean>
): Promise<string | 'kept' | undefined> {
  if (wish.kernelfile !== undefined || wish.kernelversion !== undefined) return wantedKernel(tree, wish)
  const version = image.kernelversion
  const recorded = pack?.kernel
  if (recorded !== undefined) {
    const packed = pack?.kernelversion ?? versionOf(recorded) ?? version
    // A version that was changed since the last pack asks for another kernel.
    const changed = version === packed ? undefined : await ofVersion(tree, version)
    const file = changed ?? (await fileIn(tree, `boot/${recorded}`))
    if (file) return file
  }
  const named = image.kernelfile === undefined ? undefined : await namedFile(tree, image.kernelfile)
  if (named !== undefined) return named
  if (image.kernelfile !== undefined && (await isOwnFile(image.kernelfile))) return 'kept'
  return (
    (await ofVersion(tree, version)) ??
    (await kernelsIn(tree)).find(({ spare, hasModules }) => !spare || hasModules)?.path
  )
}

/** Returns the path of the kernel of a version; undefined where there is none. */
const ofVersion = async (tree: string, version: string | undefined) =>
  version === undefined
    ? undefined
    : (await kernelsIn(tree)).find(({ name, ...kernel }) =>
        [kernel.version, versionOf(name)].includes(version)
      )?.path

/**
 * Returns the initramfs for a kernel: the requested one, the one the image had, or that of the version. A
 * name that no tool gives is the admin's choice: it is `chosen`, and not rebuilt.
 */
export async function chooseInitrd(
  tree: string,
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelRequest,
  version: string | undefined,
  kernel: string | undefined,
  isOwnFile: (name: string) => Promise<boolean>
): Promise<{ path: string; chosen: boolean } | 'kept' | undefined> {
  const said = [version, kernel && versionOf(kernel)].filter(name => name !== undefined)
  const usual = said.flatMap(initrdNames)
  const own = (path: string) => ({ path, chosen: !usual.includes(basename(path)) })
  if (wish.initrdfile !== undefined) {
    const path = await namedFile(tree, wish.initrdfile)
    return path === undefined ? undefined : own(path)
  }
  const recorded = pack?.initrd
  // An initramfs that a tool made for another kernel does not fit.
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
  const beside = kernel && dirname(kernel) !== 'boot' ? dirname(kernel) : undefined
  const places = beside === undefined ? [] : ['initrd', 'initramfs.img'].map(name => `${beside}/${name}`)
  for (const place of [...usual.map(name => `boot/${name}`), ...places]) {
    const path = await fileIn(tree, place)
    if (path !== undefined) return { path, chosen: false }
  }
  return undefined
}

const isToolName = (name: string) => /^initrd\.img-|^initramfs-.*\.img$|^initrd-/.test(name)
