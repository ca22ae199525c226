import { mkdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { runFairly } from '../base/concurrency.js'
import { firstOf } from '../base/log.js'
import { exists, isFile, sameBytes, syncFile } from '../disk/file.js'
import { choosePacker } from '../helper/packer/choose-packer.js'
import { hashFile } from '../helper/packer/in-worker.js'
import type { Packer } from '../helper/packer/packer.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import { fileNameRule, isFileName } from '../model/names.js'
import { wantedRoots } from '../model/root-format.js'
import { unsigned, unsignedKernels, unsignedSentence } from '../model/secure-boot.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'
import type { PackRoot } from '../model/types/pack-roots.js'
import { StoreError } from '../store/errors.js'
import { type BootFiles, bootFiles } from './boot-files.js'
import { type ImageContext, unusable } from './context.js'
import { belowBoot, type KernelRequest } from './kernel.js'
import { type PackNote, packNote, temporary } from './notes.js'
import { discard, type Made, nameFiles, publish, servedMode } from './publish.js'
import { checkRoots, makeRoot } from './roots.js'
import { signerOf } from './signature.js'
import { signWithSiteKey } from './site-key.js'
import { createTorrent } from './torrent/torrent.js'
import { checkSystem, treeOf } from './trees.js'

type BootField = 'kernel' | 'kernelfile' | 'kernelversion' | 'kernelsigner' | 'initrd' | 'initrdfile'
/** The fields of a pack that name its boot files. */
type BootFields = Partial<Record<BootField, string>>

const KINDS = ['kernel', 'initrd'] as const

interface Order {
  readonly image: OsimageDoc
  readonly tree: string
  readonly packer: Packer
  readonly files: BootFiles
  /** The boot files to copy out of the tree. */
  readonly copies: readonly { readonly what: (typeof KINDS)[number]; readonly path: string }[]
  readonly formats: ReadonlySet<PackRoot['format']>
  readonly id: string
}

/** Stored sentences on what the packer left out; the record of the request has all. */
const mostOmitted = 100

/**
 * Packs an image: initramfs, archive, torrents, boot files, and the stored pack. After a failure the image is
 * as before and nothing stays. Throws 503 for what is missing, else the error of the step.
 */
export async function packImage(
  context: ImageContext,
  name: string,
  wish: KernelRequest,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const image = context.model.get('osimage', name)
  const tree = await treeOf(context, image)
  await checkSystem(image, tree)
  const { config, manifest, notes, work } = context
  const files = await bootFiles(context, image, tree, wish, job)
  const copies = KINDS.flatMap(what => {
    const path = files[what]
    return path === undefined || path === 'kept' ? [] : [{ what, path }]
  })
  // Reports faults in them before the long work.
  for (const { path } of copies) {
    fileName(name, `${name}-${'0'.repeat(12)}`, path)
    await work.call('readable', { tree, path })
  }
  const formats = await runFairly(wantedRoots(context.model.view, context.model.cluster, name))
  await checkRoots(name, tree, formats, files.version)
  const packer = await choosePacker(config.image.packer, config.image.compressor)
  let note = packNote()
  await mkdir(config.paths.files, { recursive: true })
  await notes.write(note)
  try {
    const order = { image, tree, packer, files, copies, formats, id: note.id }
    const { pack, made, omitted } = await makeFiles(context, order, job)
    const names = made.map(({ name }) => name)
    const noted = async (files: readonly string[]) => {
      const named: PackNote = { ...note, files }
      await notes.write(named)
      note = named
    }
    // Only the answer may be lost: the next leader may have an image that names these files.
    const kept = async (error: unknown) => {
      if (manifest && error instanceof StoreError) {
        await manifest.keep(names)
        await noted([])
      }
      throw error
    }
    const rest = await context.files.run(async () => {
      await noted(names)
      await nameFiles(context, made, job.signal)
      return publish(context, { image, files, pack }, actor).catch(kept)
    })
    await rest(job).catch(error => context.files.run(() => kept(error)))
    await report(context, order, pack, omitted, job)
  } finally {
    await discard(context, note)
  }
}

/** Makes the archive, the copies of the boot files and the torrent, all with hidden names and durable. */
async function makeFiles(context: ImageContext, order: Order, job: JobContext) {
  const { config, now, work } = context
  const { image, tree, packer, id } = order
  const { signal } = job
  const directory = config.paths.files
  const hidden = (what: string) => join(directory, temporary(id, what))
  job.line(`packing ${tree} with the ${packer.name} packer`)
  const { exclude: excludes, compressor, time_limit: timeLimitMs } = config.image
  const { sha256, bytes, omitted } = await work.call(
    'pack',
    { tree, excludes, packer: packer.name, compressor, output: temporary(id, 'pack') },
    { signal, timeLimitMs, line: job.line, progress: fraction => job.progress(0.05 + fraction * 0.9) }
  )
  const mode = await servedMode(directory)
  const stem = `${image.name}-${sha256.slice(0, 12)}`
  const imagefile = `${stem}${packer.suffix}`
  const boot = await copyBootFiles(context, order, stem, job)
  const made: Made[] = [{ from: hidden('pack'), name: imagefile }, ...boot.made]
  const roots: PackRoot[] = []
  const bounds = { timeLimitMs, most: config.image.max_unpacked }
  for (const format of [...order.formats].sort()) {
    const course = { format, stem, output: hidden(format) }
    const root = await makeRoot(hidden('pack'), packer.suffix, course, bounds, job)
    roots.push(root)
    made.push({ from: hidden(format), name: root.file })
    job.line(`${root.file}: ${root.bytes} bytes, root hash ${root.roothash}`)
  }
  for (const { from, name } of made.filter(one => !boot.made.includes(one)))
    if (await makeTorrent(context, from, name, `${from}-torrent`, job))
      made.push({ from: `${from}-torrent`, name: `${name}.torrent` })
  for (const { from } of made) await syncFile(from, mode)
  signal.throwIfAborted()
  const pack: PackDoc = {
    ...{ name: imagefile, osimage: image.name, sha256, bytes, time: now(), packer: packer.name },
    ...boot.fields,
    ...(roots.length === 0 ? {} : { roots }),
    ...(omitted.length === 0 ? {} : { omitted: shortened(omitted) })
  }
  return { pack, made, omitted }
}

/** Copies the boot files out of the tree; returns the copies and the fields of the pack that name them. */
async function copyBootFiles(
  { config, work }: ImageContext,
  { image, tree, files, copies, id }: Order,
  stem: string,
  job: JobContext
): Promise<{ made: Made[]; fields: BootFields }> {
  const { signal } = job
  const made: Made[] = []
  const fields: BootFields = {}
  for (const { what, path } of copies) {
    const from = join(config.paths.files, temporary(id, what))
    const course = { signal, timeLimitMs: config.image.time_limit }
    await work.call('copy', { tree, path, output: temporary(id, what) }, course)
    if (what === 'kernel' && config.image.sign_kernels)
      await signWithSiteKey(config.paths.state, from, from, signal).catch(({ message }: Error) => {
        signal.throwIfAborted()
        throw unusable(image.name, `[image] sign_kernels: ${message}`)
      })
    if (what === 'kernel') {
      const found = await signerOf(from, signal)
      if ('unknown' in found) job.line(found.unknown)
      else fields.kernelsigner = found.signer
    }
    // A pack without its kernel may come with another kernel. That file gets another name: a tag may pin
    // the usual one, or a node may be booting it.
    let file = fileName(image.name, stem, path)
    if (!(await isFree(join(config.paths.files, file), from, signal)))
      file = fileName(image.name, `${stem}-${(await hashFile(from, signal)).sha256.slice(0, 8)}`, path)
    made.push({ from, name: file })
    fields[`${what}file` as const] = file
    const below = belowBoot(path)
    if (below !== undefined) fields[what] = below
  }
  if (fields.kernelfile && files.version) fields.kernelversion = files.version
  return { made, fields }
}

/** Puts a pack into the record of the request. */
async function report(
  { log, model }: ImageContext,
  { image, files }: Order,
  { name: imagefile, bytes, sha256, kernelsigner }: PackDoc,
  omitted: readonly string[],
  job: JobContext
): Promise<void> {
  for (const [key, value] of Object.entries({ imagefile, sha256, bytes })) job.result(key, value)
  for (const sentence of omitted) job.line(sentence)
  if (omitted.length > 0) job.result('omitted', [...omitted])
  job.line(`${imagefile}: ${bytes} bytes, sha256 ${sha256}`)
  if (kernelsigner !== undefined) {
    job.result('kernelsigner', kernelsigner)
    const isUnsigned = kernelsigner === unsigned
    job.line(isUnsigned ? unsignedSentence(imagefile) : `the kernel is signed by ${kernelsigner}`)
    const found = await runFairly(unsignedKernels(model.view, model.cluster, image.name))
    for (const [sentence, nodes] of found)
      log.warn(`${sentence}; ${firstOf(nodes, 5)}: field "loader" is grub`)
  }
  // Logged, because the answer has no body, and the image may be meant to boot from disks alone.
  const lacking = (!files.kernel && 'a kernel') || (!files.initrd && 'an initramfs')
  if (lacking)
    log.warn(`OS image ${image.name} was packed without ${lacking}: its nodes cannot boot from the network`)
}

/** Whether nothing has this path, or a file with the same bytes. */
const isFree = async (there: string, file: string, signal: AbortSignal): Promise<boolean> =>
  !(await exists(there)) || ((await isFile(there)) && (await sameBytes(file, there, signal)))

function fileName(image: string, stem: string, path: string): string {
  const name = `${stem}-${basename(path)}`
  if (isFileName(name)) return name
  const why = `${JSON.stringify(basename(path))} cannot be served: its name must be ${fileNameRule}`
  throw unusable(image, why)
}

/** Makes a torrent if there is a tracker; returns whether it did. Without one the pack goes by http. */
async function makeTorrent(
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

const shortened = (all: readonly string[]) =>
  all.length <= mostOmitted ? all : [...all.slice(0, mostOmitted), `and ${all.length - mostOmitted} more`]
