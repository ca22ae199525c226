import { readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { unavailable } from '../base/errors.js'
import { isFile, sameBytes, syncDirectory } from '../disk/file.js'
import type { JobContext } from '../jobs/jobs.js'
import type { ClusterIndex } from '../model/cluster-index.js'
import type { Actor } from '../model/model.js'
import { docsOf, type Tx, type View } from '../model/stored.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'
import { MOST_ROOTS } from '../model/types/pack-roots.js'
import type { BootFiles } from './boot-files.js'
import { type Controllers, type ImageContext, sameImage } from './context.js'
import { type PackNote, temporary } from './notes.js'

/** Returns the name of the pack that this file is, or whose torrent it is. */
export const packOf = (name: string) => name.replace(/\.torrent$/, '')

/** Whether an image, a tag or a pack has this file of the files directory. A torrent goes with its pack. */
export const isServed = (index: ClusterIndex, name: string) =>
  index.isImageFile('boot', name) || index.isImageFile('pack', packOf(name))

/** Returns the files of a pack, without its torrent. */
export const filesOf = (pack: PackDoc): string[] =>
  [...packedFilesOf(pack), pack.kernelfile, pack.initrdfile].filter(file => file !== undefined)

/** Returns the files of a pack that may have a torrent: the tar, and the roots that were made of it. */
export const packedFilesOf = ({ name, roots = [] }: PackDoc) => [name, ...roots.map(({ file }) => file)]

/** Returns the name of the pack that a root was made of; of another file, its own name. */
export const packWith = (view: View, file: string): string =>
  docsOf(view, 'pack').find(({ roots }) => roots?.some(root => root.file === file))?.name ?? file

/** A new file, and the name that it will get. */
export interface Made {
  readonly from: string
  readonly name: string
}

/** A pack, and what it was made of. */
interface Outcome {
  readonly image: OsimageDoc
  readonly files: BootFiles
  readonly pack: PackDoc
}

/** Gives the files their names, which the note of the pack has to hold for `discard`. */
export async function nameFiles({ config }: ImageContext, made: readonly Made[], signal: AbortSignal) {
  const directory = config.paths.files
  for (const { from, name } of made) {
    const to = join(directory, name)
    // A file of that name with the same bytes stays: nodes may be half way through it.
    if ((await isFile(to)) && (await sameBytes(from, to, signal))) await rm(from)
    else await rename(from, to)
  }
  await syncDirectory(directory)
}

/**
 * Stores a pack; the returned function gives it to the image. Among several controllers that function waits
 * until a second one has the pack; until then the image has the pack before (rules 11.19).
 */
export async function publish(
  context: ImageContext,
  outcome: Outcome,
  actor: Actor
): Promise<(job: JobContext) => Promise<void>> {
  const { model, controllers, coming } = context
  const own = controllers?.own
  const { pack } = outcome
  if (!controllers || controllers.others().length === 0) {
    await model.change(actor, tx => putImage(tx, outcome, own))
    return async () => {}
  }
  const before = model.view.get('pack', pack.name)
  const over = () => coming.delete(pack.name)
  coming.add(pack.name)
  await model
    .change(actor, tx => void putPack(tx, outcome))
    .catch(error => {
      over()
      throw error
    })
  return async job => {
    try {
      await awaitSecond(context, controllers, pack, job)
      await model.change(actor, tx => putImage(tx, outcome, own))
    } catch (error) {
      const undone = model.change(actor, tx => {
        if (before) tx.put('pack', pack.name, before)
        else if (!tx.index.isFileReferenced('pack', pack.name)) tx.remove('pack', pack.name)
      })
      // If that cannot be stored, the sweep removes the pack, as no image has it.
      await undone.catch(() => undefined)
      throw error
    } finally {
      over()
    }
  }
}

/** The wait for a second controller grows with the size of the pack. */
const SECOND = { ms: 60_000, bytesInMs: 10_000, lookMs: 500 }

/** Waits until two controllers have a pack, or the time is over. Throws 503 where none has it. */
async function awaitSecond(
  { config, log, ticks }: ImageContext,
  { own, others, having }: Controllers,
  pack: PackDoc,
  job: JobContext
): Promise<void> {
  const waitMs = SECOND.ms + pack.bytes / SECOND.bytesInMs
  const giveUp = ticks() + waitMs
  job.line(`it counts once a second controller has it, or after ${Math.ceil(waitMs / 1000)} s`)
  for (;;) {
    const here = await Promise.all(filesOf(pack).map(file => isFile(join(config.paths.files, file))))
    const have = [here.every(Boolean) ? own : [], await having(pack, job.signal)].flat()
    const all = others().length + 1
    if (have.length > 1) return job.line(`controllers ${have.join(' and ')} have it`)
    if (ticks() >= giveUp || all === 1) {
      const lost = `no controller that is there has ${pack.name}, which was packed: pack the image again`
      if (have.length === 0) throw unavailable(lost, 'image-unusable')
      const text =
        `OS image ${pack.osimage}: of ${all} controllers ${have[0]} alone has its new pack ` +
        `${pack.name}; without that one, nodes boot the pack before: look at GET /monitor/service/svcd ` +
        'of the others'
      job.line(text)
      return log.warn(text)
    }
    await sleep(SECOND.lookMs, undefined, { signal: job.signal }).catch(() => job.signal.throwIfAborted())
  }
}

/** Stores the pack; returns the image. Throws 503 where the image has changed. */
function putPack(tx: Tx, { image, pack }: Outcome): OsimageDoc {
  const now = sameImage(tx, image, 'it was packed')
  const present = tx.get('pack', now.imagefile ?? '')
  // Packs are ordered by time, and the clock of the controller that made the present one may be ahead.
  const isSame = present === undefined || present.name === pack.name
  const time = isSame ? pack.time : Math.max(pack.time, present.time + 1)
  // The same tar has the same name: nodes may stream a root that was made of it before.
  const { roots = [] } = pack
  const former = tx.get('pack', pack.name)?.roots ?? []
  const others = former.filter(({ file }) => !roots.some(root => root.file === file))
  const all = [...roots, ...others].slice(0, MOST_ROOTS)
  tx.put('pack', pack.name, { ...pack, time, ...(all.length === 0 ? {} : { roots: all }) })
  return now
}

function putImage(tx: Tx, outcome: Outcome, controller: string | undefined): void {
  const { files, pack } = outcome
  const { kernelfile, initrdfile, kernelversion: _, ...rest } = putPack(tx, outcome)
  tx.put('osimage', rest.name, {
    ...rest,
    ...set('controller', controller),
    imagefile: pack.name,
    ...set('kernelfile', files.kernel === 'kept' ? kernelfile : pack.kernelfile),
    ...set('initrdfile', files.initrd === 'kept' ? initrdfile : pack.initrdfile),
    // An unknown version must not stay that of the kernel before.
    ...set('kernelversion', files.version)
  })
}

const set = <K extends string>(key: K, value: string | undefined) =>
  (value === undefined ? {} : { [key]: value }) as { [P in K]?: string }

/** Removes the files of a pack that nothing names, and its note. The next start retries. Never throws. */
export async function discard({ config, notes, log, model, files }: ImageContext, note: PackNote) {
  const directory = config.paths.files
  try {
    await files.run(async () => {
      // Also temporary files that would have become hidden files of the pack.
      const begun = (await readdir(directory)).filter(
        name => name.startsWith('.') && name.includes(`${temporary(note.id)}.`)
      )
      for (const name of begun) await rm(join(directory, name), { force: true, recursive: true })
      for (const name of note.files)
        if (!isServed(model.view.index, name)) await rm(join(directory, name), { force: true })
      await syncDirectory(directory)
      await notes.drop(note)
    })
  } catch (error) {
    log.error(`what a pack left in ${directory} could not be removed: ${(error as Error).message}`)
  }
}

/** Packs hold secrets: svcd alone reads new files; in a setgid directory its group, the seeder's, too. */
export async function servedMode(directory: string): Promise<number> {
  const { mode } = await stat(directory)
  return mode & 0o2000 ? 0o640 : 0o600
}
