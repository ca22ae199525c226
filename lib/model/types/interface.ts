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

/** The options of an interface (docs/interfaces.md), and what each takes. */
const optionRules: Readonly<Record<string, RegExp>> = {
  mtu: /^\d{1,6}$/,
  vlan: /^(?:[1-9]\d{0,2}|[1-3]\d{3}|40[0-8]\d|409[0-4])$/,
  link: /^[\w.:-]+$/,
  on: /^[\w.:-]+$/,
  bond: /^[\w.:,-]+$/,
  bridge: /^[\w.:,-]+$/,
  mode: /^(?:balance-(?:rr|xor|tlb|alb)|active-backup|broadcast|802\.3ad)$/,
  metric: /^\d{1,9}$/,
  defaultroute: /^(?:yes|no)$/,
  dhcp: /^(?:yes|no)$/
}

/** The names of all options. */
export const optionNames = Object.keys(optionRules)

/** Options by their names. */
export type InterfaceOptions = Readonly<Record<string, string | undefined>>

/** Returns the options in a field `options`, words `name=value`. Unknown names and values are left out. */
export function interfaceOptions(text: string | undefined): InterfaceOptions {
  const options: Record<string, string> = {}
  for (const word of text?.split(/\s+/) ?? []) {
    const [, name = '', value = ''] = /^(\w+)=(.+)$/.exec(word) ?? []
    if (Object.hasOwn(optionRules, name) && optionRules[name]?.test(value)) options[name] = value
  }
  return options
}

/** Returns the names in the option `bond` or `bridge`. */
export const membersOf = (option: string | undefined): string[] => option?.split(',').filter(Boolean) ?? []

/** Returns a field `options` with the interfaces that it names under their new names, old name → new one. */
export function renamedOptions(
  text: string | undefined,
  renames: ReadonlyMap<string, string>
): string | undefined {
  const now = (names: string) => names.split(',').map(name => renames.get(name) ?? name)
  return text?.replace(/(?<=(?:^|\s)(?:link|bond|bridge|on)=)\S+/g, names => now(names).join(','))
}
