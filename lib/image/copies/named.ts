import type { Files } from '../../model/cluster-index.js'
import { docsOf, type View } from '../../model/stored.js'
import { filesOf } from '../../model/tags.js'
import type { PackDoc } from '../../model/types/osimage.js'

/** A file that an image or a tag names. */
export interface NamedFile {
  readonly name: string
  /** The object that names it, for messages. */
  readonly by: string
  /** The record of svcd: it has the size and the checksum. */
  readonly pack: Pick<PackDoc, 'sha256' | 'bytes'> | undefined
}

const LATELY_MS = 3_600_000

/** Yields every image and every tag with the files that it names; `title` is for messages. */
export function* fileHolders(view: View) {
  for (const image of docsOf(view, 'osimage'))
    yield { type: 'osimage', name: image.name, title: `OS image ${image.name}`, files: filesOf(image) }
  for (const doc of docsOf(view, 'osimagetag')) {
    const title = `OS image ${doc.osimage}: tag ${doc.tag}`
    yield { type: 'osimagetag', name: doc.name, title, files: filesOf(doc) }
  }
}

/** Returns the files that images and tags name, each once: kernels and initramfs first, as they are small. */
export function namedFiles(view: View): NamedFile[] {
  const boot = new Map<string, NamedFile>()
  const packed = new Map<string, NamedFile>()
  const add = (by: string, { imagefile, kernelfile, initrdfile }: Files) => {
    for (const name of [kernelfile, initrdfile])
      if (name !== undefined && !boot.has(name)) boot.set(name, { name, by, pack: undefined })
    if (imagefile === undefined || packed.has(imagefile)) return
    const pack = view.get('pack', imagefile)
    packed.set(imagefile, { name: imagefile, by, pack })
    for (const root of pack?.roots ?? []) packed.set(root.file, { name: root.file, by, pack: root })
  }
  for (const { title, files } of fileHolders(view)) add(title, files)
  // A pack that is not yet its image's: a second controller has to fetch it first (rules 11.19).
  for (const pack of docsOf(view, 'pack')) {
    const image = view.get('osimage', pack.osimage)
    // An image without a pack may be being packed, or its pack is only kept for nodes that still install it.
    const { time = Date.now() - LATELY_MS } = view.get('pack', image?.imagefile ?? '') ?? {}
    if (image && pack.time >= time) add(`OS image ${image.name}`, { ...pack, imagefile: pack.name })
  }
  return [...boot.values(), ...packed.values()]
}
