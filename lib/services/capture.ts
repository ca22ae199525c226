import { parseAddress } from '../model/address.js'
import type { Connection } from '../model/cluster-index.js'
import type { TypeName } from '../model/docs.js'
import { domainOf, provisionOf, settingsOf } from '../model/effective.js'
import { type ClusterSettings, docsOf, type View } from '../model/stored.js'
import type { BmcsetupDoc } from '../model/types/bmcsetup.js'
import type { GroupDoc } from '../model/types/group.js'
import type { NetworkDoc } from '../model/types/network.js'
import type { NodeDoc } from '../model/types/node.js'
import { objectTypes, typeNames } from '../model/types.js'

/** The objects of one moment that files are rendered from. They never change, so references are enough. */
export interface Captured {
  readonly networks: readonly NetworkDoc[]
  readonly nodes: readonly NodeDoc[]
  readonly devices: readonly Device[]
  readonly cluster: ClusterSettings
  /** Every controller that shares these objects, in natural order. */
  readonly controllers: readonly ClusterSettings['controller'][]
  /** Groups by name: nodes inherit from them. */
  readonly groups: ReadonlyMap<string, GroupDoc>
  readonly bmcsetups: ReadonlyMap<string, BmcsetupDoc>
}

/** An object with an address or a MAC that is no node. */
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
  const devices = (type: TypeName) =>
    docsOf(view, type).flatMap(doc => view.index.connectionsOf({ type, name: doc.name }, doc))
  return {
    networks: docsOf(view, 'network'),
    nodes: docsOf(view, 'node'),
    devices: typeNames
      .filter(type => type !== 'node' && objectTypes[type].connections)
      .flatMap(devices)
      .map(({ owner, ...entry }) => ({ ...entry, title: `${owner.title} ${owner.name}`, name: owner.name })),
    cluster,
    controllers,
    groups: new Map(docsOf(view, 'group').map(group => [group.name, group])),
    bmcsetups: new Map(docsOf(view, 'bmcsetup').map(setup => [setup.name, setup]))
  }
}

/** Returns the settings of a node, and the provision interface and domain of its host name. */
export function ownName({ groups, cluster }: Captured, node: NodeDoc) {
  const settings = settingsOf(node, groups.get(node.group ?? ''), cluster)
  const provision = provisionOf(node, settings)
  return { settings, provision, domain: domainOf(settings, provision) }
}

const label = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/
/** Short enough for the name of a device, or `hostmaster`, in front of it. */
const longestZone = 180

/** Reverse zones are made from addresses alone. */
const ofAddresses = /(?:^|\.)in-addr\.arpa$/

/** Returns a name in lower case; undefined when it can be neither a zone nor a name in one. */
export function domainName(name: string): string | undefined {
  const lower = name.toLowerCase()
  const fits =
    lower.length <= longestZone &&
    lower.split('.').every(part => label.test(part)) &&
    !ofAddresses.test(lower)
  return fits && parseAddress(lower) === undefined ? lower : undefined
}
