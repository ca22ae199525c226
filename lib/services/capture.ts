import { parseAddress } from '../model/address.js'
import type { TypeName } from '../model/docs.js'
import { domainOf, provisionOf, settingsOf } from '../model/effective.js'
import type { Connection } from '../model/index.js'
import type { ClusterSettings, View } from '../model/stored.js'
import type { GroupDoc } from '../model/types/group.js'
import type { NetworkDoc } from '../model/types/network.js'
import type { NodeDoc } from '../model/types/node.js'
import { objectTypes, typeNames } from '../model/types.js'

/**
 * The objects that DHCP and DNS are made of, as of one moment. A stored object never changes, so holding them is
 * enough, and what is made of them may take its time.
 */
export interface Captured {
  readonly networks: readonly NetworkDoc[]
  readonly nodes: readonly NodeDoc[]
  /** What is not a node and has an address. */
  readonly devices: readonly Device[]
  readonly cluster: ClusterSettings
  /** Every controller that shares these objects, in natural order. */
  readonly controllers: readonly ClusterSettings['controller'][]
  /** By name: for what nodes inherit. */
  readonly groups: ReadonlyMap<string, GroupDoc>
}

/** Something that has an address or a MAC, and is not a node. */
export interface Device extends Connection {
  /** "switch sw1": for comments. */
  readonly title: string
  readonly name: string
}

/** Captures the objects. It costs a look-up for each. */
export function capture(
  view: View,
  cluster: ClusterSettings,
  controllers: Captured['controllers'] = [cluster.controller, ...cluster.otherControllers]
): Captured {
  const all = <K extends TypeName>(type: K) => view.names(type).flatMap(name => view.get(type, name) ?? [])
  const devices = (type: TypeName) =>
    all(type).flatMap(doc => view.index.connectionsOf({ type, name: doc.name }, doc))
  return {
    networks: all('network'),
    nodes: all('node'),
    devices: typeNames
      .filter(type => type !== 'node' && objectTypes[type].connections)
      .flatMap(devices)
      .map(({ owner, ...entry }) => ({ ...entry, title: `${owner.title} ${owner.name}`, name: owner.name })),
    cluster,
    controllers,
    groups: new Map(all('group').map(group => [group.name, group]))
  }
}

/** The network of a node's own host name and the address it stands for: those of its provision interface. */
export function ownName({ groups, cluster }: Captured, node: NodeDoc) {
  const settings = settingsOf(node, groups.get(node.group ?? ''), cluster)
  const provision = provisionOf(node, settings)
  return { settings, provision, domain: domainOf(settings, provision) }
}

const label = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/
/** Short enough for the name of a device, or `hostmaster`, in front of it. */
const longestZone = 180

/** svcd makes the zones of addresses from addresses alone. */
const ofAddresses = /(?:^|\.)in-addr\.arpa$/

/** A name as DNS has it, in lower case; undefined when it can be neither a zone nor a name in one. */
export function domainName(name: string): string | undefined {
  const lower = name.toLowerCase()
  const fits =
    lower.length <= longestZone &&
    lower.split('.').every(part => label.test(part)) &&
    !ofAddresses.test(lower)
  return fits && parseAddress(lower) === undefined ? lower : undefined
}
