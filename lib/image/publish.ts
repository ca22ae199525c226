import { readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { sameBytes } from '../disk/copy.js'
import { syncDirectory } from '../disk/directory.js'
import { isFile } from '../disk/missing.js'
import { unavailable } from '../errors.js'
import type { ClusterIndex } from '../model/index.js'
import type { Actor } from '../model/model.js'
import type { PackDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { type PackIntent, temporary } from './intents.js'

/** The pack that a file of the files directory is, or whose torrent it is. */
export const packOf = (name: string) => name.replace(/\.torrent$/, '')

/** Whether an image, a tag or a pack has this file of the files directory. A torrent goes with its pack. */
export const isServed = (index: ClusterIndex, name: string) =>
  index.isImageFile('boot', name) || index.isImageFile('pack', packOf(name))

/** A file that was made, and the name it is to have. */
export interface Made {
  readonly from: string
  readonly name: string
}

/** What a pack changes in the objects, as JSON: another controller may have packed. */
export interface Outcome {
  /** The field "path" of the image that was packed. */
  readonly path?: string
  /** The fields that stay as they are: they name the admin's own files. */
  readonly kept: readonly ('kernelfile' | 'initrdfile')[]
  /** The version of the kernel, where it is known. */
  readonly version?: string
  readonly pack: PackDoc
}

/** Gives the files their names, which the note of the pack must hold by now. After a failure, `discard` takes back what was done. */
export async function nameFiles(
  { config }: ImageContext,
  made: readonly Made[],
  signal: AbortSignal
): Promise<void> {
  const directory = config.paths.files
  for (const { from, name } of made) await giveName(from, join(directory, name), signal)
  await syncDirectory(directory)
}

/** Stores a pack with the image that has it. `controller`: where the directory of the image is, among several. */
export async function publish(
  { model }: Pick<ImageContext, 'model'>,
  { path, kept, version, pack }: Outcome,
  controller: string | undefined,
  actor: Actor
): Promise<void> {
  await model.change(actor, tx => {
    const now = tx.get('osimage', pack.osimage)
    if (!now) throw unavailable(`OS image ${pack.osimage} was deleted or renamed while it was packed`)
    if (now.path !== path)
      throw unavailable(`OS image ${pack.osimage}: field "path" was changed while it was packed`)
    const { kernelfile, initrdfile, kernelversion, ...rest } = now
    tx.put('osimage', now.name, {
      ...rest,
      ...(controller === undefined ? {} : { controller }),
      imagefile: pack.name,
      ...set('kernelfile', kept.includes('kernelfile') ? kernelfile : pack.kernelfile),
      ...set('initrdfile', kept.includes('initrdfile') ? initrdfile : pack.initrdfile),
      ...set('kernelversion', version ?? kernelversion)
    })
    tx.put('pack', pack.name, pack)
  })
}

const set = <K extends string>(key: K, value: string | undefined) =>
  (value === undefined ? {} : { [key]: value }) as { [P in K]?: string }

/** A file of that name that holds the same stays as it is: nodes may be half way through it. */
async function giveName(from: string, to: string, signal: AbortSignal): Promise<void> {
  if ((await isFile(to)) && (await sameBytes(from, to, signal))) await rm(from)
  else await rename(from, to)
}

/**
 * Removes what a pack left: its hidden files, its other files where nothing has them, and its note. What cannot be
 * removed now is removed by the next start. Never throws.
 */
export async function discard(
  { config, intents, log, model, files }: ImageContext,
  note: PackIntent
): Promise<void> {
  const directory = config.paths.files
  try {
    await files.run(async () => {
      // Also the temporary files that would have become hidden files of it.
      const begun = (await readdir(directory)).filter(
        name => name.startsWith('.') && name.includes(`${temporary(note.id)}.`)
      )
      for (const name of begun) await rm(join(directory, name), { force: true })
      for (const name of note.files)
        if (!isServed(model.view.index, name)) await rm(join(directory, name), { force: true })
      await syncDirectory(directory)
      await intents.drop(note.id)
    })
  } catch (error) {
    log.error(`what a pack left in ${directory} could not be removed: ${(error as Error).message}`)
  }
}

/**
 * The mode of what is put into the files directory. Packs hold secrets of the image, so they are the daemon's
 * alone; where the directory is setgid, its group, which is the seeder's, may read.
 */
export async function servedMode(directory: string): Promise<number> {
  const { mode } = await stat(directory)
  return mode & 0o2000 ? 0o640 : 0o600
}
