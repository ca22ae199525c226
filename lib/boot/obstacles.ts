import type { ServiceError } from '../errors.js'
import { contains, parseAddress } from '../model/address.js'
import type { EffectiveNode } from '../model/effective.js'
import { untagged } from '../model/tags.js'
import { notRendered, ofTag, packedWithout } from '../monitor/boot-steps.js'
import type { Source } from '../source.js'

/** Characters of a template's fault: it may quote what a variable holds. */
const longestFault = 300

/** Why there is no boot script at all: `error` tells which template is at fault, and where. */
export const unrenderable = ({ message }: ServiceError) => `${notRendered}: ${message.slice(0, longestFault)}`

/** Why a node cannot be booted, as one sentence; undefined when it can (rules 4.1). */
export function obstacle(
  { node, settings, image, provision, network }: EffectiveNode,
  hasFile: (name: string) => boolean
): string | undefined {
  if (settings.osimage === null) return `node ${node.name} has no OS image`
  if (!image) return `OS image ${settings.osimage} does not exist`
  for (const [what, file] of [
    ['kernel (kernelfile)', image.kernelfile],
    ['initramfs (initrdfile)', image.initrdfile],
    ['packed image (imagefile)', image.imagefile]
  ] as const) {
    if (file === undefined) return lacks(image, settings.osimagetag, what)
    if (!hasFile(file)) return `the ${what} of OS image ${image.name}, ${file}, is missing`
  }
  if (provision?.ipaddress === undefined && !network?.dhcp)
    return `node ${node.name} has neither an address nor DHCP on its interface ${settings.provision_interface}`
  return undefined
}

/** The sentence on a file that an image, or the tag of it that the node has, does not name. */
function lacks({ name, imagefile }: NonNullable<EffectiveNode['image']>, tag: string, what: string): string {
  const whose = tag === untagged ? `OS image ${name}` : `${ofTag}${tag} of OS image ${name}`
  return `${whose} ${imagefile === undefined ? '' : packedWithout}has no ${what}`
}

/**
 * One sentence for a node that asks from outside the network in which it is provisioned, because the network settings
 * in its script may lead nowhere (rules 4.21); undefined otherwise. A request over loopback (a test, a tunnel, a virtual
 * machine) does not tell where the machine is.
 */
export function misplaced(
  { node, provision, network, prefix }: EffectiveNode,
  { address, loopback }: Source
): string | undefined {
  const from = parseAddress(address)
  if (loopback || from === undefined || !network || !prefix || contains(prefix, from)) return undefined
  return `node ${node.name} asks for its boot script from ${address}, outside network ${network.name} (${network.network}) of its interface ${provision?.interface}`
}
