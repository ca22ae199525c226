import { join } from 'node:path'
import { hasFile } from '../disk/file.js'
import { groupOf, settingsOf } from '../model/effective.js'
import { type ClusterSettings, docsOf, type View } from '../model/stored.js'

/** Programs that the initramfs needs for attestation, and their packages. */
const programs = { tpm2: 'tpm2-tools', openssl: 'openssl' }

/** Returns the images of nodes that have to prove something, and what their policies are (rules 15.8). */
export function imagesOfTrust(view: View, cluster: ClusterSettings): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const node of docsOf(view, 'node')) {
    const { osimage, trust } = settingsOf(node, groupOf(view, node), cluster)
    if (osimage !== null && trust !== 'none') found.set(osimage, (found.get(osimage) ?? new Set()).add(trust))
  }
  return found
}

/** Returns what an image's tree lacks for these policies; undefined if it lacks nothing. */
export function lackingForTrust(tree: string, policies: ReadonlySet<string> | undefined): string | undefined {
  const lacking = Object.entries(programs).filter(([program]) => !hasFile(join(tree, 'usr/bin', program)))
  if (!policies || lacking.length === 0) return undefined
  const packages = lacking.map(([, name]) => name)
  return (
    `trust = ${[...policies].sort().join(' and ')} of its nodes needs ${packages.join(' and ')} in the ` +
    `image, for its initramfs: chroot ${tree} apt-get install ${packages.join(' ')} (or dnf), and pack it`
  )
}
