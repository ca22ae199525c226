import { address, freeText, mac, objectName, type Stored, type Table } from '../field.js'

/** An interface as a group holds it, and as a node does with its address (rules 1.9, 3.14). */
export const interfaceFields = [
  { name: 'interface', type: objectName, meaning: 'interface name' },
  { name: 'network', type: objectName, refers: 'network', meaning: 'name of a network' },
  { name: 'ipaddress', type: address, meaning: 'address in that network (nodes only)' },
  { name: 'macaddress', type: mac, meaning: 'hardware address (nodes only)' },
  { name: 'options', type: freeText, default: '', meaning: 'free options' }
] as const satisfies Table

/** A stored interface entry; `own`: the node brought it itself and keeps it when its group changes. */
export type InterfaceDoc = { readonly interface: string } & Omit<
  Stored<typeof interfaceFields>,
  'interface'
> & {
    readonly own?: true
  }
