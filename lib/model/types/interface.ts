import { address, boolean, freeText, mac, objectName, type Stored, type Table } from '../field.js'
import { listOf } from '../table.js'

const name = { name: 'interface', type: objectName, required: true, meaning: 'interface name' } as const
const network = {
  name: 'network',
  type: objectName,
  refers: 'network',
  meaning: 'name of a network'
} as const
const options = {
  name: 'options',
  type: freeText,
  default: '',
  meaning: 'words such as mtu=9000; docs/interfaces.md lists them'
} as const

/** The fields of a node's interface (rules 1.9, 3.14). */
export const interfaceFields = [
  name,
  network,
  { name: 'ipaddress', type: address, meaning: 'address in that network (nodes only)' },
  { name: 'macaddress', type: mac, meaning: 'hardware address (nodes only)' },
  options
] as const satisfies Table

/** The fields of a group's interface, which has no addresses. */
export const groupInterfaceFields = [name, network, options] as const satisfies Table

export type InterfaceDoc = Stored<typeof interfaceFields> & {
  /** Not from the group: kept when the group changes. */
  readonly own?: boolean
}

export const groupInterfaces = {
  name: 'interfaces',
  type: listOf<InterfaceDoc>('interface', [name, { ...network, required: true }, options]),
  default: [],
  omitsDefault: true,
  meaning: 'interfaces of its nodes'
} as const

export const nodeInterfaces = {
  name: 'interfaces',
  type: listOf<InterfaceDoc>('interface', [
    ...interfaceFields,
    { name: 'own', type: boolean, default: false, omitsDefault: true, meaning: 'not from its group' }
  ]),
  default: [],
  omitsDefault: true,
  meaning: 'its interfaces'
} as const
