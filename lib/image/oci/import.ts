import { mkdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { badRequest, ServiceError, unavailable } from '../../base/errors.js'
import { exists } from '../../disk/file.js'
import { STORED } from '../../helper/containers-storage.js'
import type { JobContext } from '../../jobs/jobs.js'
import type { Actor } from '../../model/model.js'
import { isObjectName, objectNameRule } from '../../model/names.js'
import type { Tx } from '../../model/stored.js'
import type { ImageSource } from '../../model/types/image-source.js'
import type { OsimageDoc } from '../../model/types/osimage.js'
import type { ImageContext } from '../context.js'
import { placeOf } from '../grab.js'
import { packNote, temporary } from '../notes.js'
import { discard } from '../publish.js'
import { unusable } from '../refusals.js'
import { alreadyThere, placeTree } from '../tree-changes.js'
import { here } from '../trees.js'
import { type System, systemIn } from './boot-needs.js'
import { keepLayers, lendLayers } from './layers.js'
import { type Reference, readReference } from './reference.js'
import { readLayout, Skopeo } from './skopeo.js'

interface Wanted {
  readonly name: string
  readonly reference: Reference
  /** The image is created; otherwise its directory is replaced. */
  readonly isNew: boolean
}

/** Returns what an import is to fetch. Throws 400 for a name that is taken or no name, and for no source. */
export async function checkImport(context: ImageContext, name: string, source: string): Promise<Wanted> {
  const about = `OS image ${name}`
  if (!isObjectName(name)) throw badRequest(`${about}: its name must be ${objectNameRule}`, 'invalid-name')
  const reference = readReference(source, about)
  if (context.model.view.get('osimage', name))
    throw badRequest(`${about} exists already: svcctl osimage update ${name} ${source}`, 'already-exists')
  const place = join(context.config.image.directory, name)
  if (!context.model.view.get('tree', name)?.abandoned && (await exists(place))) throw alreadyThere(place)
  return { name, reference, isNew: true }
}

/** Returns what an update is to fetch: `source`, else what the image was made of. Throws 400 for neither. */
export function checkUpdate(image: OsimageDoc, source: string | null): Wanted {
  const about = `OS image ${image.name}`
  const from = source ?? image.source?.reference
  if (from === undefined)
    throw badRequest(
      `${about}: field "source" is missing, and the image was not imported: type svcctl osimage update ` +
        `${image.name} SOURCE`,
      'missing-field'
    )
  return { name: image.name, reference: readReference(from, about), isNew: false }
}

/**
 * Makes a container image the tree of an OS image, unless it is that already: fetched into a hidden
 * directory, unpacked beside the tree. After any failure or kill all is as before (rules 9.16).
 */
export async function fetchImage(
  context: ImageContext,
  wanted: Wanted,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { config, model } = context
  const { name, reference } = wanted
  const said = saying(name, reference, job)
  const before = model.view.get('osimage', name)
  if (wanted.isNew && before) throw badRequest(`OS image ${name} exists already`, 'already-exists')
  if (!wanted.isNew) model.get('osimage', name)
  const skopeo = new Skopeo(config.image, reference, context.work)
  await skopeo.check().catch(said)
  await inScratch(context, async scratch => {
    const found = await skopeo.describe(scratch, job.signal).catch(said)
    job.result('digest', found.digest)
    const { source } = before ?? {}
    const place = await placeOf(config.image.directory, before ?? { name })
    if (source?.digest === found.digest && place.tree !== undefined) {
      job.line(`${reference.text} is still ${found.digest}: nothing was fetched`)
      if (source.reference === reference.text) return
      return model.change(actor, tx => {
        const now = tx.get('osimage', name)
        if (now?.source === source)
          tx.put('osimage', name, { ...now, source: { ...source, reference: reference.text } })
      })
    }
    job.line(`fetching ${reference.text}, ${found.digest}, ${found.bytes ?? 'an unknown number of'} bytes`)
    const lent = await lendLayers(context, scratch, found.layers, source?.layers, job).catch(said)
    await skopeo.copy(scratch, found, job, lent).catch(said)
    const kept = await readLayout(scratch).catch(said)
    const made = { reference: reference.text, digest: found.digest, time: context.now(), ...kept }
    await placeImage(context, { wanted, before, place, scratch, made }, actor, job).catch(said)
    // The storage of podman keeps its own.
    await keepLayers(context, scratch, reference.text.startsWith(STORED) ? [] : made.layers).catch(
      ({ message }) => job.line(`its layers are not kept for the next update: ${message}`)
    )
  })
}

/** Returns what rethrows a failure with the image and the reference, as 503 unless it is typed. */
export const saying =
  (name: string, { text }: Reference, job: JobContext) =>
  (error: unknown): never => {
    job.signal.throwIfAborted()
    if (error instanceof ServiceError) throw error
    throw unusable(name, `${text}: ${(error as Error).message}`, error)
  }

/** Does work in a hidden directory of `[paths] files`, which is removed after it, or by the next start. */
export async function inScratch(
  context: ImageContext,
  work: (scratch: string) => Promise<void>
): Promise<void> {
  const { files } = context.config.paths
  const note = packNote()
  const scratch = join(files, temporary(note.id, 'oci'))
  await mkdir(files, { recursive: true })
  await context.notes.write(note)
  try {
    await mkdir(scratch, { mode: 0o700 })
    await work(scratch)
  } finally {
    await discard(context, note)
  }
}

interface Fetched {
  readonly wanted: Wanted
  readonly before: OsimageDoc | undefined
  readonly place: Awaited<ReturnType<typeof placeOf>>
  readonly scratch: string
  readonly made: ImageSource
}

/** Unpacks a layout beside the place of the tree, and puts it there with the object. */
async function placeImage(
  context: ImageContext,
  { wanted, before, place, scratch, made }: Fetched,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { config, log, model, work } = context
  const { directory, max_unpacked: bytes, time_limit: timeLimitMs } = config.image
  const { name, isNew } = wanted
  const { parent, target, tree } = place
  let system: System = {}
  const fill = async (path: string) => {
    const layout = basename(scratch)
    const layers = Math.max(1, made.layers.length)
    const args = { layout, parent, work: basename(path), bytes, layers }
    await work.call('unpack', args, {
      ...{ signal: job.signal, timeLimitMs, line: text => job.line(text) },
      progress: fraction => job.progress(0.5 + fraction * 0.4)
    })
    system = await systemIn(path)
    if (system.lacking === undefined) return
    job.result('lacking', system.lacking)
    job.line(`OS image ${name} cannot boot yet: ${system.lacking}`)
    log.warn(`OS image ${name} cannot boot yet: ${system.lacking}`)
  }
  const commit = async (record: (tx: Tx, osimage: string) => void) => {
    const { lacking: _, ...fields } = system
    const values = new Map(Object.entries(isNew ? fields : {}))
    values.set('path', before?.path ?? join(directory, name))
    const given = { values, newName: undefined, interfaces: [], override: false, readBack: false }
    await model.save('osimage', name, given, actor, tx => {
      const now = tx.get('osimage', name)
      const stood = model.view.get('osimage', name)
      if (!now || stood?.path !== before?.path || (stood === undefined) !== isNew)
        throw unavailable(`OS image ${name} was changed while ${made.reference} was fetched`, 'image-changed')
      tx.put('osimage', name, { ...now, ...here(context), source: made })
      record(tx, name)
    })
  }
  const placement = { parent, target, replaces: tree !== undefined, timeLimitMs, fill, commit }
  await placeTree(context, placement, job)
  job.line(`OS image ${name} is ${made.digest}: ${made.layers.length} layers; pack it for the nodes`)
}
