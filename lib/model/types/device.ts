import { formatAddress } from '../address.js'
import { address, mac, objectName, type Stored, type Table } from '../field.js'
import { nextFree } from '../networks.js'
import type { ChangeContext } from '../object-type.js'

/** The only connection of a switch or another device. */
export const deviceFields = [
  { name: 'network', type: objectName, refers: 'network', meaning: 'network of its address' },
  { name: 'ipaddress', type: address, meaning: 'address in that network' },
  { name: 'macaddress', type: mac, meaning: 'hardware address' }
] as const satisfies Table

/** A switch or another device, seen as its connection. */
type DeviceDoc = { readonly name: string } & Stored<typeof deviceFields>

/** The behaviour that all types of devices share. */
export const device = {
  connections: (doc: DeviceDoc) => [doc],
  unique: ['macaddress'],
  /** A clone gets the next free address of the network (rules 3.2). */
  copy<D extends DeviceDoc>({ tx, cluster }: ChangeContext, copy: D): D {
    if (copy.network === undefined || copy.ipaddress === undefined) return copy
    return { ...copy, ipaddress: formatAddress(nextFree(tx, copy.network, cluster)) }
  }
}
