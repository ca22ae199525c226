import { type Address, contains, type Prefix, parsePrefix } from '../../model/address.js'
import type { NetworkDoc } from '../../model/types/network.js'
import { nests } from './overlap.js'

/** The networks of one CIDR, those that serve DHCP first. */
export interface Group {
  readonly id: number
  readonly cidr: string
  readonly prefix: Prefix
  readonly dhcp: boolean
  readonly networks: readonly NetworkDoc[]
  /** Prefixes of networks inside it, which answer for their own addresses (rules 3.6). */
  readonly inside: readonly Prefix[]
  /** Whether it answers for the controller's address. */
  readonly here: boolean
}

/** The networks by CIDR, those with the longest prefix first. */
export function groupsOf(networks: readonly NetworkDoc[], controller: Address | undefined): Group[] {
  const byCidr = new Map<string, NetworkDoc[]>()
  for (const network of networks) {
    const there = byCidr.get(network.network)
    if (there) there.push(network)
    else byCidr.set(network.network, [network])
  }
  const groups = [...byCidr].flatMap(([cidr, members]) => {
    const prefix = parsePrefix(cidr)
    const sorted = [...members.filter(({ dhcp }) => dhcp), ...members.filter(({ dhcp }) => !dhcp)]
    return prefix ? [{ cidr, prefix, dhcp: sorted[0]?.dhcp ?? false, networks: sorted }] : []
  })
  groups.sort((a, b) => a.prefix.length - b.prefix.length || a.prefix.first - b.prefix.first)
  const ids = idsOf(groups.map(({ prefix }) => prefix))
  const inside = new Map<object, Prefix[]>()
  const note = (nest: ReturnType<typeof nests<(typeof groups)[number]>>[number]) => {
    inside.set(
      nest.of,
      nest.inside.map(({ of }) => of.prefix)
    )
    nest.inside.forEach(note)
  }
  nests(groups).forEach(note)
  const here =
    controller === undefined ? undefined : groups.findLast(({ prefix }) => contains(prefix, controller))
  return groups
    .map((group, i) => ({
      ...group,
      id: ids[i] ?? 0,
      inside: inside.get(group) ?? [],
      here: group === here
    }))
    .reverse()
}

/** The largest id that Kea takes. */
const largestId = 2 ** 32 - 2
/** How many networks of two addresses there are in 224.0.0.0/3, where no machine has its address. */
const singles = 2 ** 28

/**
 * A number for each prefix. It never changes, and a longer prefix has a lower one, as Kea takes the first subnet that
 * holds an address. Every prefix up to /31 has its own place in a heap that is counted from its end. Single addresses
 * have the places of /31 in 224.0.0.0/3; two that differ in their first four bits alone share one.
 */
function idsOf(prefixes: readonly Prefix[]): number[] {
  const used = new Set<number>()
  return prefixes.map(({ first, length }) => {
    const place = 2 ** length + Math.floor(first / 2 ** (32 - length))
    let id = length === 32 ? singles - (first % singles) : Math.min(2 ** 32 - place, largestId)
    while (used.has(id)) id -= 1
    used.add(id)
    return id
  })
}
