import type { Dirent } from 'node:fs'
import { opendir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { unavailable } from '../base/errors.js'
import { hasAnyInside, resolveInside } from '../disk/open-directory.js'
import { orderOf } from '../helper/packer/version-order.js'
import { file } from '../model/field.js'
import { isFileName } from '../model/names.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'

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

/** Returns the kernel that an image boots. `kept`: the admin's own file in the files directory. */
export async function chooseKernel(
  tree: string,
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelRequest,
  isOwnFile: (name: string) => Promise<boolean>
): Promise<string | 'kept' | undefined> {
  // The requested one comes first, then the one it had, a named one, that of its version, and the newest.
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

/** Returns the initramfs for a kernel. A name that no tool gives is `chosen` by an admin, and not rebuilt. */
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
  // The requested one comes first, then the one the image had, a named one, and that of the version.
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

export interface Kernel {
  /** Below the tree, with no link left. */
  readonly path: string
  /** The first place where it was found, for messages. */
  readonly name: string
  /** The version of its modules, or that of its name. */
  readonly version?: string
  readonly hasModules: boolean
  /** The reason that it is not chosen by default: a copy, a rescue kernel. */
  readonly spare?: string
}

/** Directories of kernels. Anyone may fetch a copied file, so links out of them are not followed. */
const home = /^(?:boot|efi|(?:usr\/)?lib\/modules)\/./

/** Names per directory: an image may be a stranger's. */
const MOST_NAMES = 100
/** Entries that are looked at. */
const MOST_ENTRIES = 10_000

const label = /^(?:vmlinu[xz]|b?zImage|Image|kernel)(?:-(.+))?$/
const compressed = /\.(?:gz|xz|zst|bz2|lz4|efi|hmac|sig|asc|sha\d+|map|config)$/
const copy =
  /(?:[._-](?:bak|back|backup|old|orig|saved?|prev|copy|dpkg-\w+|rpm(?:save|new|orig))|~)[._-]?\d*~?$/
const rescue = /(?:^|-)0?-?rescue(?:-|$)/
const variants = new RegExp(
  '(?:^|[+._-])(debug|dbg|rt\\d*|realtime|lowlatency|preempt|kdump|64kb?|16kb?|cloud|kvm|kvmsmall|virt|aws|' +
    'azure|gcp|oracle|vanilla)(?=[+._-]|$)'
)

/** Returns the variant of a kernel, such as `debug`; undefined for the plain one. */
export const variantOf = (version: string): string | undefined => variants.exec(version)?.[1]

/** Resolves a boot file below the tree; undefined where there is no such regular file. */
async function fileIn(tree: string, path: string): Promise<string | undefined> {
  const found = await resolveInside(tree, path)
  if (found === undefined || !home.test(found)) return undefined
  return (await stat(join(tree, found)).catch(() => undefined))?.isFile() ? found : undefined
}

/** Returns the names in a directory of the tree, none where there is none. Throws 503 for too many. */
async function namesIn(tree: string, path: string, filter = (_: Dirent) => true): Promise<string[]> {
  const directory = await resolveInside(tree, path)
  if (directory === undefined) return []
  const names: string[] = []
  let entries = 0
  const tooMany = (what: string) => unavailable(`/${path} of the image holds over ${what}`, 'image-unusable')
  for await (const entry of await opendir(join(tree, directory)).catch(() => [])) {
    if (++entries > MOST_ENTRIES) throw tooMany(`${MOST_ENTRIES} files`)
    if (filter(entry)) names.push(entry.name)
    if (names.length > MOST_NAMES) throw tooMany(`${MOST_NAMES} kernels or their directories`)
  }
  return names
}

const moduleHomes = ['lib/modules', 'usr/lib/modules']

/** Whether an image has the modules of a kernel: the directory alone may be left of a removed one. */
export async function hasModules(tree: string, version: string): Promise<boolean> {
  if (!isFileName(`vmlinuz-${version}`)) return false
  const lists = ['modules.dep', 'modules.order'].map(list => `${version}/${list}`)
  const paths = moduleHomes.flatMap(home => lists.map(list => `${home}/${list}`))
  return hasAnyInside(tree, paths)
}

/** Returns the kernel versions whose modules an image has. */
export async function versionsIn(tree: string): Promise<string[]> {
  const names = new Set<string>()
  for (const home of moduleHomes) for (const name of await namesIn(tree, home)) names.add(name)
  const there: string[] = []
  for (const name of names) if (await hasModules(tree, name)) there.push(name)
  return there
}

/** Returns 6.1.0 for `vmlinuz-6.1.0`, `…/modules/6.1.0/vmlinuz` and `boot/<machine-id>/6.1.0/linux`. */
export function versionOf(path: string): string | undefined {
  const [name = '', directory, above] = path.split('/').reverse()
  const isEntry = name === 'linux' && above !== undefined && above !== 'boot'
  if (isEntry || above === 'modules') return directory
  return label.exec(name)?.[1]
}

/** Whether an image has a program that builds an initramfs. */
export function hasInitramfsTool(tree: string): Promise<boolean> {
  const homes = ['usr/bin', 'usr/sbin', 'bin', 'sbin']
  const tools = homes.flatMap(home => [`${home}/dracut`, `${home}/mkinitramfs`])
  return hasAnyInside(tree, tools)
}

/** Paths whose directory names the version. */
async function* placesIn(tree: string): AsyncGenerator<string> {
  const isKernel = ({ name }: Dirent) => label.test(name) && isFileName(name) && !compressed.test(name)
  const isNumbered = ({ name }: Dirent) => /^[0-9]/.test(name)
  for (const name of await namesIn(tree, 'boot', isKernel)) yield `boot/${name}`
  for (const root of ['boot', 'efi', 'boot/efi'])
    for (const entry of await namesIn(tree, root, found => found.isDirectory()))
      for (const version of await namesIn(tree, `${root}/${entry}`, isNumbered))
        yield `${root}/${entry}/${version}/linux`
  for (const home of moduleHomes)
    for (const version of await namesIn(tree, home))
      for (const name of ['vmlinuz', 'Image', 'vmlinux']) yield `${home}/${version}/${name}`
}

/**
 * Returns the kernels of an image, the default first: one with modules, if any has them; a plain one before
 * its variants; the newest by the order of the image's packages. Copies and rescue kernels come last.
 */
export async function kernelsIn(tree: string): Promise<Kernel[]> {
  const versions = await versionsIn(tree)
  const order = await orderOf(tree)
  const newest = (all: string[]) => all.sort(order).at(-1)
  /** Returns the version for a name: of vmlinuz-lts (Alpine), of one without a version, or as it says. */
  const meant = async (label: string | undefined) => {
    if (label === undefined) return versions.length === 1 ? versions[0] : undefined
    if (versions.includes(label)) return label
    return newest(versions.filter(version => version.endsWith(`-${label}`))) ?? label
  }
  const found = new Map<string, Kernel>()
  for await (const place of placesIn(tree)) {
    const path = await fileIn(tree, place)
    if (path === undefined || found.has(path)) continue
    const said = versionOf(path) ?? versionOf(place)
    const name = basename(place)
    const spare = rescue.test(said ?? name)
      ? 'is a rescue kernel'
      : copy.test(said ?? name)
        ? 'is a backup copy'
        : undefined
    const version = spare === undefined ? await meant(said) : said
    found.set(path, {
      ...{ path, name: place.startsWith('boot/') && place.split('/').length === 2 ? name : `/${place}` },
      ...(version === undefined ? {} : { version }),
      ...(spare === undefined ? {} : { spare }),
      hasModules: version !== undefined && versions.includes(version)
    })
  }
  const rank = ({ spare, hasModules, version }: Kernel) =>
    (spare === undefined ? 0 : 4) + (hasModules ? 0 : 2) + (variantOf(version ?? '') === undefined ? 0 : 1)
  return [...found.values()].sort((a, b) => rank(a) - rank(b) || order(b.version ?? '', a.version ?? ''))
}
