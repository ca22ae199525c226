import { link, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { badRequest, ServiceError, unavailable } from '../../base/errors.js'
import { exists, isFile, unlessMissing } from '../../disk/file.js'
import { hasAnyInside, textInside } from '../../disk/open-directory.js'
import { STORED } from '../../helper/containers-storage.js'
import { hashFile } from '../../helper/packer/in-worker.js'
import type { JobContext } from '../../jobs/jobs.js'
import type { Actor } from '../../model/model.js'
import { isObjectName, objectNameRule } from '../../model/names.js'
import { docsOf, type Tx } from '../../model/stored.js'
import type { ImageSource, OsimageDoc } from '../../model/types/osimage.js'
import { type ImageContext, unusable } from '../context.js'
import { hasInitramfsTool, kernelsIn } from '../kernel.js'
import { packNote, temporary } from '../notes.js'
import { discard } from '../publish.js'
import { placeOf } from '../transfers.js'
import { alreadyThere, placeTree } from '../tree-changes.js'
import { here, usualInits } from '../trees.js'
import { blobsIn, type Reference, readLayout, readReference, Skopeo } from './skopeo.js'

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

/** Makes a container image the tree of an OS image, unless it is that: all or nothing (rules 9.16). */
export async function fetchImage(context: ImageContext, wanted: Wanted, actor: Actor, job: JobContext) {
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
export async function inScratch(context: ImageContext, work: (scratch: string) => Promise<void>) {
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
    const progress = (fraction: number) => job.progress(0.5 + fraction * 0.4)
    await work.call('unpack', args, { signal: job.signal, timeLimitMs, line: job.line, progress })
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

/** The layers of imported images, which an update need not fetch again. It may be deleted at any time. */
const layersIn = ({ config }: Pick<ImageContext, 'config'>) => join(config.paths.files, '.svcd-layers')

const nameOf = (digest: string) => digest.slice('sha256:'.length)

/**
 * Puts kept layers into the layout that skopeo fills, which then does not ask for them; returns their bytes.
 * Only those that the image had before: a registry may name the layer of a private image in its manifest.
 */
export async function lendLayers(
  context: ImageContext,
  scratch: string,
  digests: readonly string[],
  before: readonly string[] | undefined,
  { line, signal }: JobContext
): Promise<number> {
  const blobs = blobsIn(scratch)
  await mkdir(blobs, { recursive: true })
  let lent = 0
  let lentBytes = 0
  for (const name of new Set(digests.filter(digest => before?.includes(digest)).map(nameOf))) {
    const kept = join(layersIn(context), name)
    const blob = join(blobs, name)
    // The end of another import may remove what is kept, but not what is linked.
    await link(kept, blob).catch(() => {})
    if (!(await exists(blob))) continue
    const { sha256, bytes } = (await isFile(blob)) ? await hashFile(blob, signal) : { sha256: '', bytes: 0 }
    if (sha256 === name) {
      lent++
      lentBytes += bytes
    } else for (const damaged of [blob, kept]) await rm(damaged, { force: true })
  }
  if (lent > 0) line(`${lent} of ${digests.length} layers are here already`)
  return lentBytes
}

/** Keeps the layers of an image that was imported, and removes others. */
async function keepLayers(context: ImageContext, scratch: string, digests: readonly string[]) {
  const directory = layersIn(context)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  for (const name of digests.map(nameOf))
    await link(join(blobsIn(scratch), name), join(directory, name)).catch(() => {})
  await removeUnusedLayers(context)
}

/** Removes the layers that no image has, and beyond `[image] max_unpacked` those that were fetched first. */
export async function removeUnusedLayers(context: Pick<ImageContext, 'config' | 'model'>): Promise<void> {
  const directory = layersIn(context)
  const digests = docsOf(context.model.view, 'osimage').flatMap(({ source }) => source?.layers ?? [])
  const wanted = new Set(digests.map(nameOf))
  const found: { path: string; bytes: number; time: number }[] = []
  for (const name of await unlessMissing(readdir(directory), [])) {
    const path = join(directory, name)
    const { size = 0, mtimeMs = 0 } = (await unlessMissing(stat(path), undefined)) ?? {}
    found.push({ path, bytes: wanted.has(name) ? size : Number.POSITIVE_INFINITY, time: mtimeMs })
  }
  let all = 0
  for (const { path, bytes } of found.sort((a, b) => b.time - a.time))
    if (all + bytes > context.config.image.max_unpacked) await rm(path, { force: true })
    else all += bytes
}

/** The parts of an image that its nodes boot with. */
const meanings = {
  kernel: 'a kernel (below /boot, or /lib/modules/VERSION/vmlinuz)',
  init: 'an init (/sbin/init)',
  initramfs: 'dracut or initramfs-tools'
}

type Need = keyof typeof meanings

const debian = {
  ...{ kernel: 'linux-image-amd64', init: 'systemd-sysv', initramfs: 'initramfs-tools' },
  install: 'apt-get update && apt-get install -y --no-install-recommends'
}
const redHat = { kernel: 'kernel', init: 'systemd', initramfs: 'dracut', install: 'dnf install -y' }
const suse = {
  ...{ kernel: 'kernel-default', init: 'systemd-sysvinit', initramfs: 'dracut' },
  install: 'zypper --non-interactive install'
}
/** The packages of each kind of Linux, by the IDs in os-release, and what a Containerfile adds them by. */
const families = [
  { ids: ['ubuntu'], ...debian, kernel: 'linux-image-generic' },
  { ids: ['debian'], ...debian },
  { ids: ['rhel', 'fedora', 'centos', 'rocky', 'almalinux'], ...redHat },
  { ids: ['suse', 'opensuse', 'sles'], ...suse }
]

/** The kind of system in the tree of an image, and what it lacks to boot. */
interface System {
  /** For the fields of its object. */
  readonly distribution?: string
  readonly osrelease?: string
  /** One sentence, with the line for a Containerfile. */
  readonly lacking?: string
}

const MOST_OS_RELEASE = 64 * 1024

/** Looks into the tree of an image. Throws unavailable (503) for one with too many kernels. */
export async function systemIn(tree: string): Promise<System> {
  const { ID, ID_LIKE = '', VERSION_ID = '' } = await osRelease(tree)
  const missing: Need[] = []
  if ((await kernelsIn(tree)).length === 0) missing.push('kernel')
  if (!(await hasAnyInside(tree, usualInits))) missing.push('init')
  if (!(await hasInitramfsTool(tree))) missing.push('initramfs')
  return {
    ...(ID !== undefined && isObjectName(ID) ? { distribution: ID } : {}),
    ...(/^[\w.-]{1,40}$/.test(VERSION_ID) ? { osrelease: VERSION_ID } : {}),
    ...(missing.length > 0 ? { lacking: sentence(missing, [ID ?? '', ...ID_LIKE.split(' ')]) } : {})
  }
}

function sentence(missing: readonly Need[], ids: readonly string[]): string {
  const what = `it lacks ${missing.map(need => meanings[need]).join(' and ')}`
  const [family] = ids.flatMap(id => families.find(({ ids }) => ids.includes(id)) ?? [])
  if (!family) return `${what}: add them in its Containerfile, as docs/oci.md says`
  const packages = missing.map(need => family[need]).join(' ')
  return `${what}; add to its Containerfile: RUN ${family.install} ${packages}`
}

/** Reads /etc/os-release; an empty record where there is none. */
async function osRelease(tree: string): Promise<Partial<Record<string, string>>> {
  const text = (await textInside(tree, 'etc/os-release', MOST_OS_RELEASE)) ?? ''
  return Object.fromEntries(
    text.split('\n').flatMap(line => {
      // Trimmed first: an expression that ends in white space takes quadratic time on much of it.
      const [, name, value] = /^([A-Z_]+)=["']?([^"']*)["']?$/.exec(line.trimEnd()) ?? []
      return name === undefined || value === undefined ? [] : [[name, value]]
    })
  )
}
