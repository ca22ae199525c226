import { mkdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { copyTo, sameBytes, syncFile } from '../disk/copy.js'
import { openInside } from '../disk/inside.js'
import { exists, isFile } from '../disk/missing.js'
import { unavailable } from '../errors.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import { fileNameRule, isFileName } from '../model/names.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'
import { type BootFiles, bootFiles } from './boot-files.js'
import type { ImageContext } from './context.js'
import { newIntentId, type PackIntent, temporary } from './intents.js'
import { belowBoot, type KernelWish } from './kernel.js'
import { choosePacker } from './packer/choose-packer.js'
import { hashFile } from './packer/in-worker.js'
import type { Packed, Packer } from './packer/packer.js'
import { discard, type Made, publish, servedMode } from './publish.js'
import { createTorrent } from './torrent/torrent.js'
import { treeOf } from './trees.js'

/** Sentences of what a packer could not carry that are stored; the record has the others. */
const mostOmitted = 100

/**
 * Packs an image: initramfs, tar, kernel and initramfs beside it, torrent; then the image names the new files, in one
 * transaction with the pack. Whatever stops it, the image is as it was and nothing stays. Throws unavailable (503)
 * for what is missing, the error of the step that failed otherwise.
 */
export async function packImage(
  context: ImageContext,
  name: string,
  wish: KernelWish,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { model, config, intents } = context
  const image = model.get('osimage', name)
  const tree = await treeOf(config.image.directory, image)
  const files = await bootFiles(context, image, tree, wish, job)
  // Known before the long work.
  for (const path of [files.kernel, files.initrd])
    if (path !== undefined && path !== 'kept') {
      fileName(name, `${name}-${'0'.repeat(12)}`, path)
      await (await openInside(tree, path)).close()
    }
  const packer = await choosePacker(config.image.packer, config.image.compressor)
  const work = { kind: 'pack', id: newIntentId(), files: [] } as const
  const at = (what: string) => join(config.paths.files, temporary(work.id, what))
  await mkdir(config.paths.files, { recursive: true })
  await intents.write(work)
  try {
    job.line(`packing ${tree} with the ${packer.name} packer`)
    const packed = await packer.pack({
      tree,
      excludes: config.image.exclude,
      output: at('pack'),
      signal: job.signal,
      timeLimitMs: config.image.time_limit,
      progress: fraction => job.progress(0.05 + fraction * 0.9),
      line: text => job.line(text)
    })
    const mode = await servedMode(config.paths.files)
    await syncFile(at('pack'), mode)
    const stem = `${name}-${packed.sha256.slice(0, 12)}`
    const made: Made[] = [{ from: at('pack'), name: `${stem}${packer.suffix}` }]
    const names: Partial<Record<'kernel' | 'initrd', string>> = {}
    for (const what of ['kernel', 'initrd'] as const) {
      const path = files[what]
      if (path === undefined || path === 'kept') continue
      await copyTo(await openInside(tree, path), at(what), job.signal)
      await syncFile(at(what), mode)
      names[what] = await bootName(name, stem, path, at(what), config.paths.files, job.signal)
      made.push({ from: at(what), name: names[what] })
    }
    const torrent = await torrentOf(context, at('pack'), `${stem}${packer.suffix}`, at('torrent'), job)
    if (torrent) {
      await syncFile(at('torrent'), mode)
      made.push({ from: at('torrent'), name: `${stem}${packer.suffix}.torrent` })
    }
    job.signal.throwIfAborted()
    const doc = packDoc(context, image, `${stem}${packer.suffix}`, files, names, packer, packed)
    await context.files.run(() => publish(context, work.id, image, made, files, doc, actor, job.signal))
    job.result('imagefile', doc.name)
    job.result('sha256', doc.sha256)
    job.result('bytes', doc.bytes)
    for (const sentence of packed.omitted) job.line(sentence)
    if (packed.omitted.length > 0) job.result('omitted', [...packed.omitted])
    job.line(`${doc.name}: ${doc.bytes} bytes, sha256 ${doc.sha256}`)
  } finally {
    await discard(context, (intents.get(work.id) as PackIntent | undefined) ?? work)
  }
}

/**
 * The name of a boot file that was made as `file`. The same pack may come with another kernel, where the excludes leave
 * it out; the file that a tag pins, or a node is booting, stays as it is then.
 */
async function bootName(
  image: string,
  stem: string,
  path: string,
  file: string,
  directory: string,
  signal: AbortSignal
): Promise<string> {
  const name = fileName(image, stem, path)
  const there = join(directory, name)
  if (!(await exists(there)) || ((await isFile(there)) && (await sameBytes(file, there, signal)))) return name
  const { sha256 } = await hashFile(file, signal)
  return fileName(image, `${stem}-${sha256.slice(0, 8)}`, path)
}

function fileName(image: string, stem: string, path: string): string {
  const name = `${stem}-${basename(path)}`
  if (isFileName(name)) return name
  throw unavailable(
    `OS image ${image}: ${JSON.stringify(basename(path))} cannot be served: its name must be ${fileNameRule}`
  )
}

/** Makes the torrent where there is a tracker; without one the pack still goes by http. */
async function torrentOf(
  { config, log }: ImageContext,
  file: string,
  name: string,
  output: string,
  job: JobContext
): Promise<boolean> {
  const announce = config.torrent.tracker
  if (announce === '') return false
  try {
    await createTorrent({ file, name, announce, output, signal: job.signal })
    return true
  } catch (error) {
    job.signal.throwIfAborted()
    const reason = `${name} has no torrent: ${(error as Error).message}`
    job.line(reason)
    log.warn(reason)
    return false
  }
}

function packDoc(
  { now }: ImageContext,
  { name: osimage }: OsimageDoc,
  name: string,
  { kernel, initrd, version }: BootFiles,
  names: Partial<Record<'kernel' | 'initrd', string>>,
  packer: Packer,
  { sha256, bytes, omitted }: Packed
): PackDoc {
  const copied = (path: string | undefined) => path !== undefined && path !== 'kept'
  const [kernelName, initrdName] = [kernel, initrd].map(path =>
    copied(path) ? belowBoot(path as string) : ''
  )
  return {
    name,
    osimage,
    sha256,
    bytes,
    time: now(),
    packer: packer.name,
    ...(names.kernel === undefined ? {} : { kernelfile: names.kernel }),
    ...(names.initrd === undefined ? {} : { initrdfile: names.initrd }),
    ...(kernelName ? { kernel: kernelName, ...(version ? { kernelversion: version } : {}) } : {}),
    ...(initrdName ? { initrd: initrdName } : {}),
    ...(omitted.length === 0 ? {} : { omitted: shortened(omitted) })
  }
}

const shortened = (sentences: readonly string[]) =>
  sentences.length <= mostOmitted
    ? sentences
    : [...sentences.slice(0, mostOmitted), `and ${sentences.length - mostOmitted} more`]
