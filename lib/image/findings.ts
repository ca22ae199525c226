import { statSync } from 'node:fs'
import { join } from 'node:path'
import { runSync } from '../base/concurrency.js'
import { firstOf } from '../base/log.js'
import type { Config } from '../config/types.js'
import { hasDirectory, hasFile } from '../disk/file.js'
import type { Files } from '../model/cluster-index.js'
import { groupOf, nodesBySentence, settingsOf } from '../model/effective.js'
import { lackingRoot } from '../model/root-format.js'
import { unsignedKernels } from '../model/secure-boot.js'
import { type ClusterSettings, docsOf, type View } from '../model/stored.js'
import { defaultTag, tagKey } from '../model/tags.js'
import { imageDirectoryOf } from '../model/types/osimage.js'
import { fileHolders } from './copies/named.js'

/** Returns a warning if other services of this user can reach devices and setuid programs of images. */
export function reachWarning(directory: string): string | undefined {
  if (process.getuid?.() === 0 || !hasDirectory(directory)) return undefined
  const { uid, gid, mode } = statSync(directory)
  if (uid !== 0 || (mode & (gid === process.getgid?.() ? 0o11 : 0o01)) === 0) return undefined
  return (
    `[image] directory ${directory}: devices and setuid programs of images can be reached there by ` +
    `others than svcd.service; type, as root: chgrp svcd-images ${directory} && chmod 0710 ${directory}`
  )
}

/** Returns what images lack here (rules 7.7). A missing file is a problem if nodes get it, else a warning. */
export function imageFindings(config: Config, view: View, cluster: ClusterSettings) {
  const { state, files } = config.paths
  const { directory } = config.image
  const isShared = config.store.medium === 'etcd'
  /** Problems of directories of the ini; each begins with the key. */
  const onMachine: string[] = []
  const problems: { type: string; name: string; message: string }[] = []
  const warnings: string[] = []
  const holders = [...fileHolders(view)]
  const named = holders.filter(({ files }) => Object.keys(files).length > 0)
  const images = docsOf(view, 'osimage')
  const inside = images.filter(image => imageDirectoryOf(directory, image).startsWith(`${directory}/`))
  // The first start makes both directories.
  const wasStarted = hasFile(join(state, 'token.key'))
  for (const [key, path, users] of [
    ['[paths] files', files, named],
    ['[image] directory', directory, inside]
  ] as const) {
    if (hasDirectory(path)) continue
    const message = `${key}: there is no directory ${path}`
    const where = `, where ${users.length} OS images or tags have their files: is it not mounted?`
    if (users.length > 0) onMachine.push(`${message}${where}`)
    else if (wasStarted) warnings.push(`${message}; the next start makes an empty one`)
  }
  for (const { type, title, files } of holders) {
    const lacking = lacks(files)
    if (lacking === undefined) continue
    // An image without a pack may still be being made; a tag stays as it is until it is set again.
    if (type === 'osimagetag')
      warnings.push(
        `${title} has no ${lacking}: nodes with it cannot boot from the network; pack the image, and ` +
          'give it the tag again'
      )
    else if (files.imagefile !== undefined)
      warnings.push(`${title} is packed, and has no ${lacking}: its nodes cannot boot from the network`)
  }
  warnings.push(...[reachWarning(directory) ?? []].flat())
  const sent = hasDirectory(files) ? sentToNodes(view, cluster) : new Set()
  for (const { type, name, title, files: given } of hasDirectory(files) ? named : [])
    for (const [field, file] of Object.entries(given)) {
      if (hasFile(join(files, file))) continue
      const message = `${title}: field "${field}": there is no file ${join(files, file)}`
      if (isShared) warnings.push(`${message}; svcd fetches it from another controller that has it`)
      else if (sent.has(name)) problems.push({ type, name, message: `${message}, and nodes boot with it` })
      else warnings.push(message)
    }
  const proving = imagesOfTrust(view, cluster)
  for (const { name } of images)
    for (const [sentence, nodes] of runSync(unsignedKernels(view, cluster, name)))
      warnings.push(`OS image ${name}: ${sentence}; ${firstOf(nodes, 5)}: field "loader" is grub`)
  const lackingRoots = (name: string) => nodesBySentence(view, name, node => lackingRoot(view, cluster, node))
  for (const { name } of images)
    for (const [sentence, nodes] of runSync(lackingRoots(name)))
      warnings.push(`OS image ${name}: ${sentence}; ${firstOf(nodes, 5)}`)
  for (const image of hasDirectory(directory) ? images : []) {
    const tree = imageDirectoryOf(directory, image)
    const { name: own } = config.controller
    const lacking = hasDirectory(tree) ? lackingForTrust(tree, proving.get(image.name)) : undefined
    if (lacking !== undefined) warnings.push(`OS image ${image.name}: ${lacking}`)
    // Another controller has the directory.
    if (hasDirectory(tree) || (isShared && ![undefined, own].includes(image.controller))) continue
    const where = isShared ? ` on controller ${own}, and svcd knows of none on another one` : ''
    warnings.push(
      `OS image ${image.name}: there is no directory ${tree}${where}: it cannot be packed or pushed`
    )
  }
  return { onMachine, problems, warnings }
}

/** Returns the names of images and tags whose files nodes get that boot from the network. */
function sentToNodes(view: View, cluster: ClusterSettings): Set<string> {
  const sent = new Set<string>()
  for (const node of docsOf(view, 'node')) {
    const { osimage, osimagetag, netboot } = settingsOf(node, groupOf(view, node), cluster)
    if (node.rescue !== undefined) sent.add(node.rescue)
    if (osimage !== null && netboot)
      sent.add(osimagetag === defaultTag ? osimage : tagKey(osimage, osimagetag))
  }
  return sent
}

/** Returns the kinds of files that a node would lack. */
function lacks({ imagefile, kernelfile, initrdfile }: Files): string | undefined {
  if (imagefile === undefined) return 'packed image'
  if (kernelfile === undefined) return 'kernel'
  return initrdfile === undefined ? 'initramfs' : undefined
}

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
