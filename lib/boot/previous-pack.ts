import { atNextBoot, type EffectiveNode } from '../model/effective.js'
import type { Model } from '../model/model.js'
import { docsOf } from '../model/stored.js'
import { defaultTag } from '../model/tags.js'
import type { NodeDoc } from '../model/types/node.js'
import { isBootFileOf, type OsimageDoc, previousPack } from '../model/types/osimage.js'

interface PreviousPackOptions {
  readonly model: Pick<Model, 'view' | 'cluster'>
  readonly hasFile: (name: string) => boolean
  /** As in BootOptions. */
  readonly mayBeOnPeer: (name: string) => boolean
}

/** Images named in the condition. */
const MOST_TOLD = 5

/** Returns a node as this controller boots it: with the previous pack if the current one is missing. */
export function asItBoots(model: Model, node: NodeDoc, previous: PreviousPack | undefined): EffectiveNode {
  const target = atNextBoot(model.view, model.effective(node))
  return previous?.withPreviousPack(target) ?? target
}

/** Boots the previous pack of an image, whole, while no controller has the current one (rules 4.28). */
export class PreviousPack {
  /** Image with its previous pack → the missing file. Stored objects are replaced, never changed. */
  readonly #missing = new WeakMap<OsimageDoc, string>()

  constructor(private readonly options: PreviousPackOptions) {}

  /** Returns the node with the previous pack, or unchanged. A tag pins its files: it has no previous pack. */
  withPreviousPack(target: EffectiveNode): EffectiveNode {
    const { image, settings } = target
    const before = image && settings.osimagetag === defaultTag ? this.#withPreviousPack(image) : undefined
    return before ? { ...target, image: before } : target
  }

  /** Describes the fallback of a node that boots the previous pack; undefined for others. */
  sentence({ image }: Partial<Pick<EffectiveNode, 'image'>>): string | undefined {
    const missing = image && this.#missing.get(image)
    if (missing === undefined) return undefined
    return (
      `OS image ${image?.name}: controller ${this.options.model.cluster.controller.name} does not have ` +
      `${missing}, and boots the pack before, ` +
      `${image?.imagefile}, until it does: start the controller that has it, or pack the image again`
    )
  }

  /** Describes the images that boot their previous pack; undefined for none. */
  get condition(): { readonly ok: true; readonly reason: string } | undefined {
    const images = docsOf(this.options.model.view, 'osimage').map(image => this.#withPreviousPack(image))
    const told = images.flatMap(image => this.sentence({ image }) ?? [])
    return told.length === 0 ? undefined : { ok: true, reason: told.slice(0, MOST_TOLD).join('; ') }
  }

  /** Returns the image with its previous pack; undefined if not needed, or if that is incomplete. */
  #withPreviousPack(image: OsimageDoc): OsimageDoc | undefined {
    const { model, hasFile, mayBeOnPeer } = this.options
    const missing = [image.kernelfile, image.initrdfile, image.imagefile].find(
      file => file !== undefined && !hasFile(file) && !mayBeOnPeer(file)
    )
    if (missing === undefined) return undefined
    const present = model.view.get('pack', image.imagefile ?? '')
    const pack = present && previousPack(model.view, present)
    if (!pack) return undefined
    // A kernel or initramfs that an admin chose for the image stays.
    const own = (field: 'kernelfile' | 'initrdfile') =>
      image[field] === undefined || isBootFileOf(present, image[field]) ? pack[field] : image[field]
    const [kernelfile, initrdfile] = [own('kernelfile'), own('initrdfile')]
    if (kernelfile === undefined || initrdfile === undefined) return undefined
    if (![pack.name, kernelfile, initrdfile].every(hasFile)) return undefined
    const { kernelversion } = pack
    const files = { imagefile: pack.name, kernelfile, initrdfile }
    const before = { ...image, ...files, ...(kernelversion === undefined ? {} : { kernelversion }) }
    this.#missing.set(before, missing)
    return before
  }
}
