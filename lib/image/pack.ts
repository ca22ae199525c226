import { mkdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { unavailable } from '../base/errors.js'
import { exists, isFile, sameBytes, syncFile } from '../disk/file.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import { fileNameRule, isFileName } from '../model/names.js'
import type { PackDoc } from '../model/types/osimage.js'
import { StoreError } from '../store/errors.js'
import { bootFiles } from './boot-files.js'
import type { ImageContext } from './context.js'
import { newIntentId, type PackIntent, temporary } from './intents.js'
import { belowBoot, type KernelRequest } from './kernel.js'
import { choosePacker } from './packer/choose-packer.js'
import { hashFile } from './packer/in-worker.js'
import { discard, type Made, nameFiles, type Outcome, publish, servedMode } from './publish.js'
import { createTorrent } from './torrent/torrent.js'
import { checkSystem, treeOf } from './trees.js'

type BootFields = Partial<Record<'kernel' | 'kernelfile' | 'kernelversion' | 'initrd' | 'initrdfile', string>>

/** Stored sentences on what the packer left out; the record of the request has all. */
const mostOmitted = 100

/**
 * Stores a pack whose files have their names. When it throws, the files that no object names are removed,
 * unless `release` has taken them out of the note of the pack. The returned function runs when others may
 * name files again.
 */
export type Storing = (
  outcome: Outcome,
  names: readonly string[],
  release: () => Promise<void>
) => Promise<((job: JobContext) => Promise<void>) | undefined>

/**
 * Stores a pack as `publish` does. `keep`, set among several controllers, keeps files of which nobody knows
 * whether they were stored.
 */
export const storing =
  (context: ImageContext, actor: Actor, keep?: (names: readonly string[]) => Promise<void>): Storing =>
  async (outcome, names, release) => {
    const kept = async (error: unknown) => {
      // Only the answer may be lost: the next leader may have an image that names these files.
      if (keep && error instanceof StoreError) {
        await keep(names)
        await release()
      }
      throw error
    }
    const rest = await publish(context, outcome, actor).catch(kept)
    return job => rest(job).catch(error => context.files.run(() => kept(error)))
  }

/**
 * Packs an image: builds its initramfs, makes the archive and the torrent, copies kernel and initramfs, and
 * stores the pack. After a failure the image is as before and nothing stays. Throws unavailable (503) for
 * what is missing, else the error of the step that failed.
 */
export async function packImage(
  context: ImageContext,
  name: string,
  wish: KernelRequest,
  store: Storing,
  job: JobContext
): Promise<void> {
  const image = context.model.get('osimage', name)
  const tree = await treeOf(context, image)
  await checkSystem(image, tree)
  const { config, intents, log, now, work } = context
  const { signal } = job
  const files = await bootFiles(context, image, tree, wish, job)
  const whats = ['kernel', 'initrd'] as const
  const copies = whats.flatMap(what => {
    const path = files[what]
    return path === undefined || path === 'kept' ? [] : [{ what, path }]
  })
  // Reports faults in them before the long work.
  for (const { path } of copies) {
    fileName(name, `${name}-${'0'.repeat(12)}`, path)
    await work.call('readable', { tree, path })
  }
  const packer = await choosePacker(config.image.packer, config.image.compressor)
  let note: PackIntent = { kind: 'pack', id: newIntentId(), files: [] }
  const directory = config.paths.files
  const hidden = (what: string) => join(directory, temporary(note.id, what))
  await mkdir(directory, { recursive: true })
  await intents.write(note)
  try {
    job.line(`packing ${tree} with the ${packer.name} packer`)
    const { exclude: excludes, compressor, time_limit: timeLimitMs } = config.image
    const { sha256, bytes, omitted } = await work.call(
      'pack',
      { tree, excludes, packer: packer.name, compressor, output: temporary(note.id, 'pack') },
      {
        ...{ signal, timeLimitMs, line: text => job.line(text) },
        progress: fraction => job.progress(0.05 + fraction * 0.9)
      }
    )
    const mode = await servedMode(directory)
    const stem = `${name}-${sha256.slice(0, 12)}`
    const imagefile = `${stem}${packer.suffix}`
    const made: Made[] = [{ from: hidden('pack'), name: imagefile }]
    const boot: BootFields = {}
    for (const { what, path } of copies) {
      const from = hidden(what)
      await work.call('copy', { tree, path, output: temporary(note.id, what) }, { signal, timeLimitMs })
      // A pack without its kernel may come with another kernel. That file gets another name: a tag may pin
      // the usual one, or a node may be booting it.
      let file = fileName(name, stem, path)
      if (!(await isFree(join(directory, file), from, signal)))
        file = fileName(name, `${stem}-${(await hashFile(from, signal)).sha256.slice(0, 8)}`, path)
      made.push({ from, name: file })
      boot[`${what}file` as const] = file
      const below = belowBoot(path)
      if (below !== undefined) boot[what] = below
    }
    if (boot.kernelfile && files.version) boot.kernelversion = files.version
    if (await makeTorrent(context, hidden('pack'), imagefile, hidden('torrent'), job))
      made.push({ from: hidden('torrent'), name: `${imagefile}.torrent` })
    for (const { from } of made) await syncFile(from, mode)
    signal.throwIfAborted()
    const pack: PackDoc = {
      ...{ name: imagefile, osimage: name, sha256, bytes, time: now(), packer: packer.name, ...boot },
      ...(omitted.length === 0 ? {} : { omitted: shortened(omitted) })
    }
    const { version } = files
    const outcome: Outcome = {
      ...(image.path === undefined ? {} : { path: image.path }),
      kept: whats.flatMap(what => (files[what] === 'kept' ? (`${what}file` as const) : [])),
      ...(version === undefined ? {} : { version }),
      pack
    }
    const rest = await context.files.run(async () => {
      const names = made.map(({ name }) => name)
      const noted = async (files: readonly string[]) => {
        const named: PackIntent = { ...note, files }
        await intents.write(named)
        note = named
      }
      await noted(names)
      await nameFiles(context, made, signal)
      return store(outcome, names, () => noted([]))
    })
    await rest?.(job)
    for (const [key, value] of Object.entries({ imagefile, sha256, bytes })) job.result(key, value)
    for (const sentence of omitted) job.line(sentence)
    if (omitted.length > 0) job.result('omitted', [...omitted])
    job.line(`${imagefile}: ${bytes} bytes, sha256 ${sha256}`)
    // Logged, because the answer has no body, and the image may be meant to boot from disks alone.
    const [lacking] = [files.kernel ? [] : 'a kernel', files.initrd ? [] : 'an initramfs'].flat()
    if (lacking)
      log.warn(`OS image ${name} was packed without ${lacking}: its nodes cannot boot from the network`)
  } finally {
    await discard(context, note)
  }
}

/** Whether nothing has this path, or a file with the same bytes. */
const isFree = async (there: string, file: string, signal: AbortSignal): Promise<boolean> =>
  !(await exists(there)) || ((await isFile(there)) && (await sameBytes(file, there, signal)))

function fileName(image: string, stem: string, path: string): string {
  const name = `${stem}-${basename(path)}`
  if (isFileName(name)) return name
  throw unavailable(
    `OS image ${image}: ${JSON.stringify(basename(path))} cannot be served: its name must be ${fileNameRule}`,
    'image-unusable'
  )
}

/**
 * Makes a torrent where there is a tracker; returns whether it did. After a failure the pack goes by http.
 */
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
