import { mkdir, readdir, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { badRequest } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import { isFile, readRegularFile, replaceDurably } from '../disk/file.js'
import { orderOf } from '../helper/packer/version-order.js'
import type { JobContext } from '../jobs/jobs.js'
import { isBootFileOfPacks, type OsimageDoc, type PackDoc } from '../model/types/osimage.js'
import { type ImageContext, unusable } from './context.js'
import { imagesOfTrust, lackingForTrust } from './findings.js'
import {
  belowBoot,
  chooseInitrd,
  chooseKernel,
  hasInitramfsTool,
  hasModules,
  type Kernel,
  type KernelRequest,
  kernelsIn,
  namedFile,
  variantOf,
  versionOf,
  versionsIn,
  wantedKernel
} from './kernel.js'

/** The boot files of a pack: paths below the tree, or `kept` for the admin's own file. */
export interface BootFiles {
  readonly kernel: string | 'kept' | undefined
  readonly initrd: string | 'kept' | undefined
  readonly version: string | undefined
}

/** Chooses kernel and initramfs, and builds the initramfs where the ini says so and the image can. */
export async function bootFiles(
  context: ImageContext,
  image: OsimageDoc,
  tree: string,
  wish: KernelRequest,
  job: JobContext
): Promise<BootFiles> {
  const { model, config, controllers } = context
  const { view } = model
  const pack = image.imagefile === undefined ? undefined : view.get('pack', image.imagefile)
  const isOwn = (field: 'kernelfile' | 'initrdfile') => async (name: string) => {
    if (isBootFileOfPacks(view, name)) return false
    if (await isFile(join(config.paths.files, name))) return true
    // The admin may have put it on another controller; the image's own file must not replace it.
    const holders = await controllers?.whoHas(name, job.signal)
    if (holders === undefined) return false
    throw unusable(
      image.name,
      `field "${field}": the file ${name} is not on controller ${controllers?.own} so far (${holders}): ` +
        `ask again in a moment, or put it into ${config.paths.files} of controller ${controllers?.own}; ` +
        'nothing was packed'
    )
  }
  // A field of the admin stays: the file may come later.
  const stays = (field: 'kernelfile' | 'initrdfile') => {
    const name = image[field]
    if (name === undefined || isBootFileOfPacks(view, name)) return undefined
    job.line(`${field} stays ${name}, which is neither in the image nor in ${config.paths.files}`)
    return 'kept' as const
  }
  const ofKernel = pack?.kernelfile === image.kernelfile ? pack : undefined
  await checkKernelRequest(tree, image.name, wish)
  const found = await chooseKernel(tree, image, ofKernel, wish, isOwn('kernelfile'))
  const path = found === 'kept' ? undefined : found
  const kernels = path === undefined ? [] : await kernelsIn(tree)
  if (path !== undefined) checkVersion(kernels, image, ofKernel, wish, path)
  if (found === undefined) job.line('the image has no kernel below /boot')
  const kernel = found ?? stays('kernelfile')
  const version = wish.kernelversion ?? (await versionIn(tree, kernels, image, path, ofKernel))
  if (path !== undefined) job.line(`kernel: /${path}`)
  if (version === undefined && image.kernelversion !== undefined)
    job.line(`kernelversion was ${image.kernelversion}, and the image has no kernel of it: it is unset`)
  if (path !== undefined && version !== undefined)
    for (const line of await passedOver(tree, kernels, path, version)) job.line(line)
  const ofInitrd = pack?.initrdfile === image.initrdfile ? pack : undefined
  const there = await chooseInitrd(tree, image, ofInitrd, wish, version, path, isOwn('initrdfile'))
  const chosen = there === 'kept' || there?.chosen === true
  const lacking = lackingForTrust(tree, imagesOfTrust(view, model.cluster).get(image.name))
  if (lacking !== undefined) job.line(`warning: ${lacking}`)
  if (config.image.initramfs && path !== undefined && !chosen) {
    const initrd = await buildInitrd(context, image, tree, version, path, job)
    if (initrd !== undefined) return { kernel, initrd, version }
  }
  const initrd = there ?? stays('initrdfile')
  if (initrd === undefined && kernel !== undefined) job.line('the image has no initramfs for its kernel')
  else if (initrd !== undefined && initrd !== 'kept') job.line(`initramfs: /${initrd.path}`)
  return { kernel, initrd: initrd === 'kept' ? initrd : initrd?.path, version }
}

/** Builds the initramfs of a kernel; returns its path below the tree, undefined where it cannot be built. */
async function buildInitrd(
  context: ImageContext,
  image: OsimageDoc,
  tree: string,
  version: string | undefined,
  path: string,
  job: JobContext
): Promise<string | undefined> {
  const cannot = (why: string) => void job.line(why)
  if (version === undefined)
    return cannot(`the initramfs is not built: the kernel's name, ${basename(path)}, says no version`)
  // The build needs a shell, which an image without such a program may lack.
  const built =
    (await hasInitramfsTool(tree)) &&
    (await context.work.call(
      'initramfs',
      {
        tree,
        kernelversion: version,
        dracutmodules: words(image.dracutmodules),
        kernelmodules: words(image.kernelmodules),
        record: await recordOf(context, image.name)
      },
      { signal: job.signal, timeLimitMs: context.config.image.time_limit, line: text => job.line(text) }
    ))
  if (!built)
    return cannot('the image has neither dracut nor initramfs-tools: its initramfs is taken as it is')
  if (built.isBuilt)
    await keepRecord(context, image.name, built.record).catch(error =>
      job.line(`the next pack builds the initramfs again: ${(error as Error).message}`)
    )
  job.line(`initramfs: /${built.initrd}, built by ${built.tool}`)
  return built.initrd.replace(/^\/+/, '')
}

/** Throws 503 where an admin has set a version that the kernel to pack does not have (rules 9.3). */
function checkVersion(
  all: readonly Kernel[],
  image: OsimageDoc,
  pack: PackDoc | undefined,
  wish: KernelRequest,
  path: string
): void {
  const wanted = image.kernelversion
  if (wanted === undefined || wish.kernelfile !== undefined || wish.kernelversion !== undefined) return
  const chosen = all.find(kernel => kernel.path === path)
  const said = [chosen?.version, versionOf(path), chosen && versionOf(chosen.name)].filter(Boolean)
  if (said.length === 0 || said.includes(wanted)) return
  const packed = pack?.kernelversion ?? (pack?.kernel && versionOf(pack.kernel))
  // A named kernel file counts more than the version beside it. A packed one may have been upgraded.
  if (packed === undefined ? image.kernelfile !== undefined : packed === wanted) return
  const there = all.filter(({ spare }) => !spare).map(({ name }) => name)
  throw unusable(
    image.name,
    `field "kernelversion" is ${wanted}, and the image has no /boot/vmlinuz-${wanted}; there are ` +
      `${firstOf(there, mostTold)}: set kernelversion to one of these, or install that kernel in the ` +
      'image; nothing was packed'
  )
}

/** Kernels in a message. */
const mostTold = 10

/** Returns lines about newer kernels that were not chosen, and why. */
async function passedOver(tree: string, all: readonly Kernel[], path: string, version: string) {
  const order = await orderOf(tree)
  const has = all.some(kernel => kernel.path === path && kernel.hasModules)
  const newer = all.filter(kernel => kernel.version !== undefined && order(kernel.version, version) > 0)
  const lines = newer.map(({ name, spare, hasModules, version: its = '' }) => {
    const variant = variantOf(its)
    const why =
      (spare && `it ${spare}`) ??
      (has && !hasModules ? `the image has no /lib/modules/${its}/modules.dep` : undefined) ??
      (variant && variantOf(version) === undefined ? `it is a ${variant} kernel` : undefined) ??
      `the image has booted ${version} so far: set kernelversion to ${its} to boot it`
    return `newer: ${name}, not taken because ${why}`
  })
  return lines.length > mostTold
    ? [...lines.slice(0, mostTold), `and ${lines.length - mostTold} more are newer`]
    : lines
}

/** Returns a chosen kernel's version; undefined where the modules say that it is another (rules 9.3). */
async function versionIn(
  tree: string,
  all: readonly Kernel[],
  { kernelversion: its }: OsimageDoc,
  path: string | undefined,
  pack: PackDoc | undefined
): Promise<string | undefined> {
  // The version of a pack belongs to its kernel; an admin may set one before the kernel is there.
  if (path === undefined) return pack?.kernelversion === its ? undefined : its
  const said = all.find(kernel => kernel.path === path)?.version ?? versionOf(path)
  const isSame = pack?.kernel !== undefined && pack.kernel === belowBoot(path) && pack.kernelversion === its
  if (its === undefined) return said
  // A suffix of the kernel's name, as in bzImage-hpc, may be no version.
  const isWord = said !== undefined && !/^\d/.test(said) && (await hasModules(tree, its))
  if (said !== undefined && !isSame && !isWord) return said
  return (await hasModules(tree, its)) || (await versionsIn(tree)).length === 0 ? its : said
}

/** Throws 400 for files and a version that the tree does not have (rules 2.4, 9.3). */
export async function checkKernelRequest(tree: string, image: string, wish: KernelRequest): Promise<void> {
  const { kernelfile, initrdfile, kernelversion } = wish
  const refused = (field: keyof KernelRequest, why: string) =>
    badRequest(`OS image ${image}: field "${field}": ${why}`, 'invalid-field')
  if ((kernelfile ?? kernelversion) !== undefined) {
    const kernel = await wantedKernel(tree, wish)
    if (kernel === undefined)
      throw kernelfile === undefined
        ? refused('kernelversion', `the image has no /boot/vmlinuz-${kernelversion}`)
        : refused('kernelfile', `the image has no /boot/${kernelfile}`)
    const named = [kernelfile, kernel].some(name => name !== undefined && versionOf(name) === kernelversion)
    if (kernelversion !== undefined && !named && !(await hasModules(tree, kernelversion)))
      throw refused('kernelversion', `the image has no /lib/modules/${kernelversion}`)
  }
  if (initrdfile !== undefined && (await namedFile(tree, initrdfile)) === undefined)
    throw refused('initrdfile', `the image has no /boot/${initrdfile}`)
}

const words = (text = '') => text.split(/[\s,]+/).filter(word => word !== '')

/*
 * The record of the last build of each image's initramfs (packer/initramfs-cache.ts) is a file of the state
 * directory, where nobody who makes images writes.
 */

const directoryOf = ({ config }: ImageContext) => join(config.paths.state, 'initramfs')

/** Reads the record of an image; undefined where there is none, or it cannot be read. */
const recordOf = (context: ImageContext, image: string): Promise<string | undefined> =>
  readRegularFile(join(directoryOf(context), image)).then(String, () => undefined)

/** Keeps or removes the record of an image, and removes records of images that are gone. */
async function keepRecord(context: ImageContext, image: string, record?: string): Promise<void> {
  const directory = directoryOf(context)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const isThere = (name: string) => context.model.view.get('osimage', name) !== undefined
  for (const name of await readdir(directory)) {
    // The file that is being written for another image has a number after the name.
    const of = name.replace(/\.\d+$/, '')
    const isOld = name === image ? record === undefined : !isThere(name) && (of === image || !isThere(of))
    if (isOld) await rm(join(directory, name), { force: true })
  }
  if (record !== undefined) await replaceDurably(join(directory, image), record)
}
