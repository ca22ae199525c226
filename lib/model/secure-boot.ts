import { effectiveNode, loaderOf, nodesBySentence } from './effective.js'
import type { ClusterSettings, View } from './stored.js'
import type { OsimageDoc } from './types/osimage.js'

/** `kernelsigner` of a pack whose kernel carries no signature. */
export const unsigned = 'none'

/** Returns who signed the kernel of an image, as its pack has it: `none` for nobody; undefined if unknown. */
export function kernelSignerOf(
  view: View,
  image: Pick<OsimageDoc, 'imagefile' | 'kernelfile'>
): string | undefined {
  const pack = view.get('pack', image.imagefile ?? '')
  return pack?.kernelfile !== undefined && pack.kernelfile === image.kernelfile
    ? pack.kernelsigner
    : undefined
}

/** Returns a sentence if a node boots by GRUB and its kernel is known to be unsigned (rules 15.13). */
export function unsignedKernel(view: View, cluster: ClusterSettings, name: string): string | undefined {
  const node = view.get('node', name)
  if (!node) return undefined
  const target = effectiveNode(view, node, cluster)
  const { image, settings } = target
  const isUnsigned = image !== undefined && kernelSignerOf(view, image) === unsigned
  if (!isUnsigned || !settings.netboot || loaderOf(target, cluster.loader ?? 'ipxe') !== 'grub')
    return undefined
  return unsignedSentence(image.imagefile ?? '')
}

/** Returns what an unsigned kernel means. */
export const unsignedSentence = (pack: string) =>
  `the kernel of pack ${pack} carries no signature: a machine with Secure Boot on refuses it`

/** Returns the nodes of an image that boot an unsigned kernel by GRUB, in steps; the sentence of each. */
export const unsignedKernels = (view: View, cluster: ClusterSettings, image: string) =>
  nodesBySentence(view, image, node => unsignedKernel(view, cluster, node))
