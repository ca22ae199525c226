import {
  atNextBoot,
  type EffectiveNode,
  effectiveNode,
  findNodesUsing,
  isInstaller,
  layoutOf
} from './effective.js'
import type { ClusterSettings, View } from './stored.js'
import { defaultTag } from './tags.js'
import type { PackRoot, RootFormat } from './types/pack-roots.js'

/** Returns the format of a node's root: its own, its group's or its image's; tar onto a disk (rules 4.46). */
export function rootFormatOf(view: View, target: EffectiveNode): RootFormat {
  const { settings, image } = target
  const hasDisk = settings.localinstall || settings.partscript !== '' || layoutOf(view, target) !== undefined
  if (hasDisk || isInstaller(settings.provision_method)) return 'tar'
  return settings.root_format ?? image?.root_format ?? 'tar'
}

/** Returns the root that a node gets; undefined where it unpacks the tar, or its pack lacks the root. */
export function rootOf(view: View, target: EffectiveNode): PackRoot | undefined {
  const format = rootFormatOf(view, target)
  return view.get('pack', target.image?.imagefile ?? '')?.roots?.find(root => root.format === format)
}

/** Returns a sentence if the pack of a node lacks its root (rules 4.46); undefined otherwise. */
export function lackingRoot(view: View, cluster: ClusterSettings, name: string): string | undefined {
  const node = view.get('node', name)
  if (!node) return undefined
  const target = atNextBoot(view, effectiveNode(view, node, cluster))
  const { image, settings } = target
  const format = rootFormatOf(view, target)
  if (format === 'tar' || image?.imagefile === undefined || rootOf(view, target)) return undefined
  return (
    `pack ${image.imagefile} has no ${format}, the root_format, and its tar is unpacked into memory: ` +
    (settings.osimagetag === defaultTag
      ? `svcctl osimage pack ${image.name}`
      : `pack OS image ${image.name}, and give it the tag ${settings.osimagetag} anew`)
  )
}

/** Returns the formats beside tar that an image or a node of it asks for, in steps. */
export function* wantedRoots(
  view: View,
  cluster: ClusterSettings,
  image: string
): Generator<void, Set<PackRoot['format']>> {
  const wanted = new Set<RootFormat>([view.get('osimage', image)?.root_format ?? 'tar'])
  for (const name of yield* findNodesUsing(view, 'osimage', image)) {
    yield
    const node = view.get('node', name)
    if (node) wanted.add(rootFormatOf(view, effectiveNode(view, node, cluster)))
  }
  wanted.delete('tar')
  return wanted as Set<PackRoot['format']>
}
