import type { View } from '../../model/stored.js'
import { filesOf } from '../../model/tags.js'
import type { PackDoc } from '../../model/types/osimage.js'

/** A file that an image or a tag names. */
export interface NamedFile {
  readonly name: string
  /** The object that names it, for messages. */
  readonly by: string
  /** The record of a pack of svcd: it has the size and the checksum. */
  readonly pack: PackDoc | undefined
}

const LATELY_MS = 3_600_000

/** Returns the files that images and tags name, each once: kernels and initramfs first, as they are small. */
export function namedFiles(view: View): NamedFile[] {
  const boot = new Map<string, NamedFile>()
  const packed = new Map<string, NamedFile>()
  const add = (by: string, doc: Parameters<typeof filesOf>[0]) => {
    const { imagefile, ...others } = filesOf(doc)
    for (const name of Object.values(others))
      if (!boot.has(name)) boot.set(name, { name, by, pack: undefined })
    if (imagefile !== undefined && !packed.has(imagefile))
      packed.set(imagefile, { name: imagefile, by, pack: view.get('pack', imagefile) })
  }
  for (const name of view.names('osimage')) add(`OS image ${name}`, view.get('osimage', name) ?? {})
  for (const name of view.names('osimagetag')) {
    const { osimage, tag, ...files } = view.get('osimagetag', name) ?? {}
    add(`OS image ${osimage}: tag ${tag}`, files)
  }
  // A pack that is not yet its image's: a second controller has to fetch it first (rules 11.19).
  for (const pack of view.names('pack').flatMap(name => view.get('pack', name) ?? [])) {
    const image = view.get('osimage', pack.osimage)
    // An image without a pack may be being packed, or its pack is only kept for nodes that still install it.
    const { time = Date.now() - LATELY_MS } = view.get('pack', image?.imagefile ?? '') ?? {}
    if (image && pack.time >= time) add(`OS image ${image.name}`, { ...pack, imagefile: pack.name })
  }
  return [...boot.values(), ...packed.values()]
}
