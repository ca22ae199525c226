import type { Prefix } from '../model/address.js'
import { type Settings, settingsOf } from '../model/inherit.js'
import type { InterfaceDoc, NetworkDoc, NodeDoc, OsimageDoc } from '../model/tables.js'
import { tagKey, untagged } from '../model/tags.js'
import type { ClusterSettings, View } from '../model/view.js'

/** A node with everything its boot depends on, looked up once. */
export interface Target {
  readonly node: NodeDoc
  readonly settings: Settings
  readonly image: OsimageDoc | undefined
  /** The interface it is provisioned over, and that interface's network. */
  readonly provision: InterfaceDoc | undefined
  readonly network: NetworkDoc | undefined
  readonly prefix: Prefix | undefined
  /** '' without a domain (rules 4.2). */
  readonly domain: string
  /** `<node>.<domain>`, the bare name without a domain. */
  readonly hostname: string
}

/** Looks up what the boot of a node depends on; its cost does not grow with the number of nodes. */
export function targetOf(view: View, node: NodeDoc, cluster: ClusterSettings): Target {
  const settings = settingsOf(view, node, cluster)
  const provision = node.interfaces?.find(entry => entry.interface === settings.provision_interface)
  const network = provision?.network === undefined ? undefined : view.get('network', provision.network)
  const domain = settings.domain ?? network?.name ?? ''
  return {
    node,
    settings,
    image: imageOf(view, settings),
    provision,
    network,
    prefix: network && view.index.networks.get(network.name),
    domain,
    hostname: domain === '' ? node.name : `${node.name}.${domain}`
  }
}

/** The node's image, with the files that its tag pins (rules 1.2). */
function imageOf(view: View, { osimage, osimagetag }: Settings): OsimageDoc | undefined {
  const image = osimage === null ? undefined : view.get('osimage', osimage)
  if (!image || osimagetag === untagged) return image
  const { kernelfile: _, initrdfile: __, imagefile: ___, ...rest } = image
  const pinned = view.get('osimagetag', tagKey(image.name, osimagetag))
  return {
    ...rest,
    ...(pinned?.kernelfile === undefined ? {} : { kernelfile: pinned.kernelfile }),
    ...(pinned?.initrdfile === undefined ? {} : { initrdfile: pinned.initrdfile }),
    ...(pinned?.imagefile === undefined ? {} : { imagefile: pinned.imagefile })
  }
}

/** The names in a node's comma-separated roles. */
export function rolesOf({ roles }: Settings): string[] {
  return roles === null ? [] : roles.split(',').map(role => role.trim())
}

/** Why a node cannot be booted, as one sentence; undefined when it can (rules 4.1). */
export function obstacle(
  { node, settings, image, provision, network }: Target,
  hasFile: (name: string) => boolean
): string | undefined {
  if (settings.osimage === null) return `node ${node.name} has no OS image`
  if (!image) return `OS image ${settings.osimage} does not exist`
  for (const [what, file] of [
    ['kernel (kernelfile)', image.kernelfile],
    ['initramfs (initrdfile)', image.initrdfile],
    ['packed image (imagefile)', image.imagefile]
  ] as const) {
    if (file === undefined) return `OS image ${image.name} has no ${what}`
    if (!hasFile(file)) return `the ${what} of OS image ${image.name}, ${file}, is missing`
  }
  if (provision?.ipaddress === undefined && !network?.dhcp)
    return `node ${node.name} has neither an address nor DHCP on its interface ${settings.provision_interface}`
  return undefined
}

/** `<address>/<prefix length>` of the provision interface, '' where it has no address. */
export function provisionAddress({ provision, prefix }: Target): string {
  return provision?.ipaddress === undefined || !prefix ? '' : `${provision.ipaddress}/${prefix.length}`
}
