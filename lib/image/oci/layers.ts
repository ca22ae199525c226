import { link, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isFile, unlessMissing } from '../../disk/file.js'
import { hashFile } from '../../helper/packer/in-worker.js'
import type { JobContext } from '../../jobs/jobs.js'
import { docsOf } from '../../model/stored.js'
import type { ImageContext } from '../context.js'
import { blobsIn } from './skopeo.js'

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
    const isLinked = await link(kept, blob).then(
      () => true,
      () => false
    )
    if (!isLinked) continue
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
export async function keepLayers(context: ImageContext, scratch: string, digests: readonly string[]) {
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
