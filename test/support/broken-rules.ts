import type { Client } from './client.js'

export interface Entry {
  readonly interface: string
  readonly network: string | null
  readonly ipaddress?: string | null
  readonly macaddress?: string | null
}

export interface Shown {
  readonly name: string
  readonly group?: string | null
  readonly osimage?: string | null
  readonly status?: string | null
  readonly interfaces?: readonly Entry[]
}

export type Objects = Readonly<Record<string, Shown>>

/** All objects of a type, by name, as one GET shows them. */
export async function objects(client: Client, type: string): Promise<Objects> {
  const { config } = await client.read<{ config: Record<string, Objects> }>(`/config/${type}`)
  return config[type] ?? {}
}

/**
 * Every rule between objects that the answers break: a reference to nothing, an address or MAC with two
 * owners, a member without an interface of its group (nobody removed one by hand), an interface in a network
 * without an address. Empty when all is well.
 */
export async function brokenRules(client: Client): Promise<string[]> {
  const [nodes, groups, networks, images] = await Promise.all(
    ['node', 'group', 'network', 'osimage'].map(type => objects(client, type))
  )
  if (!nodes || !groups || !networks || !images) throw new Error('four lists were asked for')
  const broken: string[] = []
  const owners = new Map<string, string>()
  const only = (what: string | null | undefined, owner: string) => {
    if (!what) return
    const other = owners.get(what)
    if (other !== undefined) broken.push(`${what} belongs to ${other} and to ${owner}`)
    owners.set(what, owner)
  }
  for (const { name, group, osimage, interfaces = [] } of [
    ...Object.values(nodes),
    ...Object.values(groups)
  ]) {
    if (group && !groups[group]) broken.push(`${name} is in group ${group}, which is gone`)
    if (osimage && !images[osimage]) broken.push(`${name} has image ${osimage}, which is gone`)
    for (const { interface: nic, network, ipaddress, macaddress } of interfaces) {
      if (network && !networks[network]) broken.push(`${name} ${nic} is in network ${network}, which is gone`)
      only(ipaddress, `${name} ${nic}`)
      only(macaddress, `${name} ${nic}`)
    }
    for (const wanted of (group && groups[group]?.interfaces) || []) {
      const has = interfaces.find(entry => entry.interface === wanted.interface)
      if (!has) broken.push(`${name} lacks interface ${wanted.interface} of group ${group}`)
      // In another network it is one that the node has on its own.
      else if (has.network === null) broken.push(`${name} ${wanted.interface} is in no network`)
      else if (!has.ipaddress) broken.push(`${name} ${wanted.interface} has no address`)
    }
  }
  return broken
}
