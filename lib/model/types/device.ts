import { address, mac, objectName, type Stored, type Table } from '../field.js'

/** The one connection of a device that is not a node: what a switch and another device have of an interface. */
export const deviceFields = [
  { name: 'network', type: objectName, refers: 'network', meaning: 'network of its address' },
  { name: 'ipaddress', type: address, meaning: 'address in that network' },
  { name: 'macaddress', type: mac, meaning: 'hardware address' }
] as const satisfies Table

/** What a switch and another device have of an interface. */
export type DeviceDoc = { readonly name: string } & Stored<typeof deviceFields>

/** What all devices have in common. */
export const device = { connections: (doc: DeviceDoc) => [doc] }
