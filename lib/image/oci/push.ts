import { createHash } from 'node:crypto'
import { link, mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { badRequest, notFound } from '../../base/errors.js'
import { unlessMissing } from '../../disk/file.js'
import { hashUnpacked } from '../../helper/packer/in-worker.js'
import { LAYOUT, LAYOUT_TAG } from '../../helper/unpack.js'
import type { JobContext } from '../../jobs/jobs.js'
import { defaultTag, findTag } from '../../model/tags.js'
import { imageDirectoryOf, type OsimageDoc, type PackDoc } from '../../model/types/osimage.js'
import type { ImageContext } from '../context.js'
import { inScratch, saying } from './import.js'
import { platform, type Reference, readReference, Skopeo } from './skopeo.js'

interface Push {
  readonly image: OsimageDoc
  readonly pack: PackDoc
  readonly target: Reference
}

const type = 'application/vnd.oci.image'

/** The decompressor by the end of a pack's name, and the media type of such a layer. */
const kinds: readonly { readonly end: string; readonly media: string; readonly program?: string }[] = [
  { end: '.tar.gz', media: '.layer.v1.tar+gzip', program: 'gzip' },
  { end: '.tar.zst', media: '.layer.v1.tar+zstd', program: 'zstd' },
  { end: '.tar', media: '.layer.v1.tar' }
]

/**
 * Returns the pack that a push sends: that of a tag, else the image's own. Throws 400 for a target that is no
 * tag in a registry, and 404 without such a pack, and for an image that was changed since it was packed.
 */
export async function checkPush(
  { config, model }: ImageContext,
  name: string,
  to: string,
  tag: string | null
): Promise<Push> {
  const about = `OS image ${name}`
  const image = model.get('osimage', name)
  const target = readReference(to, about, 'target')
  const { registry, repository, text } = target
  if (registry === undefined || repository === undefined || !/^:[^@]+$/.test(text.slice(repository.length)))
    throw badRequest(`${about}: field "target": it must be docker://REGISTRY/NAME:TAG`, 'invalid-field')
  const isOwn = tag === null || tag === defaultTag
  const held = isOwn ? image : findTag(model.view, name, tag)
  if (!held) throw notFound(`${about} has no tag ${tag}: svcctl osimage tags ${name}`, 'image-not-ready')
  const pack = model.view.get('pack', held.imagefile ?? '')
  const again = `svcctl osimage pack ${name}`
  if (!pack)
    throw notFound(
      isOwn ? `${about} is not packed: ${again}` : `${about}: tag ${tag} holds no pack: ${again}, and tag it`,
      'image-not-ready'
    )
  if (!isOwn) return { image, pack, target }
  if (image.source && image.source.time > pack.time)
    throw notFound(`${about} was imported or updated since it was packed: ${again}`, 'image-not-ready')
  // A grab keeps no time: it puts a new directory there.
  const directory = imageDirectoryOf(config.image.directory, image)
  const tree = image.source ? undefined : await unlessMissing(stat(directory), undefined)
  if (tree !== undefined && tree.ctimeMs > pack.time)
    throw notFound(
      `${about}: directory ${directory} was replaced, or its entries or mode changed, since it was packed: ` +
        again,
      'image-not-ready'
    )
  return { image, pack, target }
}

/** Puts a pack into a registry, as an image of one layer: the bytes that nodes install (rules 9.17). */
export async function pushPack(context: ImageContext, push: Push, job: JobContext): Promise<void> {
  const { config } = context
  const { pack, target } = push
  const skopeo = new Skopeo(config.image, target, context.work)
  const said = saying(push.image.name, target, job)
  await skopeo.check().catch(said)
  await inScratch(context, async scratch => {
    await makeLayout(config.paths.files, scratch, push, job).catch(said)
    job.progress(0.4)
    job.line(`pushing ${pack.name}, ${pack.bytes} bytes, to ${target.text}`)
    const digest = await skopeo.push(scratch, job.signal).catch(said)
    for (const [key, value] of Object.entries({ pack: pack.name, digest })) job.result(key, value)
    job.line(`OS image ${push.image.name}: ${pack.name} is ${target.repository}@${digest}`)
  })
}

/** Makes an OCI layout of a pack, which is its layer by a link: skopeo checks its digest as it sends it. */
async function makeLayout(files: string, scratch: string, { image, pack }: Push, job: JobContext) {
  const kind = kinds.find(({ end }) => pack.name.endsWith(end))
  if (!kind) throw new Error(`${pack.name} is of no kind that a registry takes`)
  const layout = join(scratch, LAYOUT)
  const blobs = join(layout, 'blobs/sha256')
  await mkdir(blobs, { recursive: true })
  const file = join(blobs, pack.sha256)
  const packed = join(files, pack.name)
  await link(packed, file).catch(error => {
    // Another user's file may take no hard links (fs.protected_hardlinks), nor does another file system.
    if (!['EPERM', 'EXDEV'].includes(error.code)) throw error
    return symlink(packed, file)
  })
  const put = async (json: object, media: string) => {
    const text = JSON.stringify(json)
    const digest = createHash('sha256').update(text).digest('hex')
    await writeFile(join(blobs, digest), text)
    return { mediaType: `${type}${media}`, digest: `sha256:${digest}`, size: Buffer.byteLength(text) }
  }
  const created = new Date(pack.time).toISOString()
  const labels = {
    'svcd.osimage': image.name,
    'svcd.pack': pack.name,
    'svcd.kernelversion': pack.kernelversion,
    // The path of an archive is nobody else's matter.
    'svcd.source': image.source?.reference.startsWith('docker://')
      ? `${image.source.reference} ${image.source.digest}`
      : undefined
  }
  job.line(`reading ${pack.name}`)
  const { program } = kind
  const { sha256 } = program === undefined ? pack : await hashUnpacked(program, packed, job.signal)
  const config = {
    ...{ created, architecture: platform(), os: 'linux', config: { Labels: labels } },
    rootfs: { type: 'layers', diff_ids: [`sha256:${sha256}`] },
    history: [{ created, created_by: `svcd: pack of OS image ${image.name}` }]
  }
  const manifest = {
    ...{ schemaVersion: 2, mediaType: `${type}.manifest.v1+json` },
    config: await put(config, '.config.v1+json'),
    layers: [{ mediaType: `${type}${kind.media}`, digest: `sha256:${pack.sha256}`, size: pack.bytes }]
  }
  const annotations = { 'org.opencontainers.image.ref.name': LAYOUT_TAG }
  const manifests = [{ ...(await put(manifest, '.manifest.v1+json')), annotations }]
  await writeFile(join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }))
  await writeFile(join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
}
