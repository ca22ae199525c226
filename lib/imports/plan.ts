import type { JsonObject, JsonValue } from '../base/json.js'
import { addTo } from '../base/lists.js'
import { clip } from '../base/log.js'
import { formatAddress, mask, parseAddress, parsePrefix } from '../model/address.js'
import type { TypeName } from '../model/docs.js'
import { kernelOptions, noInit, type Table } from '../model/field.js'
import { isNetworkName, isNodeName, isObjectName, nodeNameRule } from '../model/names.js'
import { limitViolations, readTable, storedFields } from '../model/table.js'
import { groupInterfaces, interfaceFields } from '../model/types/interface.js'
import { objectTypes } from '../model/types.js'
import { variablesField } from '../model/variables.js'
import { fold } from '../node-set/hostlist.js'

/** Fields of an object; undefined and '' are not set. */
export type Fields = Readonly<Record<string, JsonValue | undefined>>

const MOST_NOTES = 500
const LONGEST_NAMES = 1000

/** An interface of a machine. */
export interface Card {
  readonly name: string
  readonly mac?: string | undefined
  readonly address?: string | undefined
  readonly netmask?: string | undefined
  readonly gateway?: string | undefined
  /** The name of the network of its address, if that is a new one. */
  readonly network: string
  /** Without an address: it asks for one in that network. */
  readonly dhcp?: boolean
  /** Words of `options`. */
  readonly words: readonly string[]
}

/** A node of the other system with all that it inherits there, under its name there. */
export interface Machine {
  readonly name: string
  readonly group?: string | undefined
  readonly fields: Fields
  readonly variables: Fields
  readonly kernel: readonly string[]
  readonly cards: readonly Card[]
}

/** Values that all members of a group share. */
interface Shared {
  readonly fields: Fields
  readonly variables: Fields
  readonly kernel: readonly string[]
  readonly networks: Fields
  readonly options: Fields
}

interface Network {
  readonly name: string
  readonly fields: Fields
  readonly gateways: Map<string, number>
}

const lengths = new Map([...Array(33).keys()].map(length => [mask(length), length]))

/** Returns the network of an address as `a.b.c.d/n`, by a netmask or a number of bits; undefined: none. */
export function prefixOf(address: string, netmask: string): string | undefined {
  const length = lengths.get(parseAddress(netmask) ?? -1) ?? netmask
  const prefix = parsePrefix(`${address}/${length}`)
  return prefix && `${formatAddress(prefix.first)}/${prefix.length}`
}

const increment = (counts: Map<string, number>, key: string) => counts.set(key, (counts.get(key) ?? 0) + 1)
const mostFrequent = (counts: ReadonlyMap<string, number>) =>
  [...counts].reduce<[string?, number?]>((most, one) => (one[1] > (most[1] ?? 0) ? one : most), [])[0]

/** Returns the keys that all have, each with its most frequent value; only that of all, if `same`. */
function common(all: readonly Fields[], same = false): Fields {
  const shared = Object.keys(all[0] ?? {}).flatMap(key => {
    const counts = new Map<string, number>()
    for (const one of all) {
      const value = Object.hasOwn(one, key) ? one[key] : undefined
      if (value === undefined || value === '') return []
      increment(counts, JSON.stringify(value))
    }
    return same && counts.size > 1 ? [] : [[key, JSON.parse(mostFrequent(counts) ?? 'null')]]
  })
  return Object.fromEntries(shared)
}

const sameBegin = (one: readonly string[], other: readonly string[]) => {
  const end = one.findIndex((word, i) => word !== other[i])
  return end < 0 ? one : one.slice(0, end)
}

/** Returns the message of an error that `read` throws or a limit that it returns; else undefined. */
function problemOf(read: () => unknown, otherwise = ''): string | undefined {
  try {
    const found = read()
    return typeof found === 'string' ? found : undefined
  } catch (error) {
    return (error as Error).message || otherwise
  }
}

const nothing: Shared = { fields: {}, variables: {}, kernel: [], networks: {}, options: {} }

const without = (fields: Fields, shared: Fields): Fields =>
  Object.fromEntries(
    Object.entries(fields).filter(([key, value]) => JSON.stringify(shared[key]) !== JSON.stringify(value))
  )

/** Collects the objects of another system for an import; its notes tell what is lost, and never a secret. */
export class Plan {
  readonly #notes = new Map<string, { readonly begin: string; readonly names: string[]; text: string }>()
  readonly #names = new Map<string, string>()
  readonly #objects = new Map<TypeName, Map<string, Fields>>()
  readonly #networks = new Map<string, Network>()
  readonly #bmcs = new Map<string, string>()
  readonly #lengths = new Set<string>()
  readonly #machines = new Map<string, Machine>()

  note(kind: string, name: string, text: string): void {
    const begin = Object.hasOwn(objectTypes, kind) ? objectTypes[kind as TypeName].title : kind
    const known = this.#notes.get(`${kind} ${text}`)
    if (known?.names.at(-1) === name) return
    if (known) known.names.push(name)
    else this.#notes.set(`${kind} ${text}`, { begin, names: [name], text })
  }

  /** Notes that an object, or a field of it, is left out; `why` may say more. */
  lose(kind: string, name: string, field = '', why = 'is left out'): void {
    const more = why === 'is left out' ? ': docs/moving.md tells what svcd has instead' : ''
    this.note(kind, name, `${field} ${why}${more}`.trim())
  }

  /** A line for each sentence, with all objects of one type of which it is true. */
  get notes(): string[] {
    const all = [...this.#notes.values()].map(({ begin, names, text }) => {
      const many = names.length > 1 ? ` (${names.length} of them)` : ''
      return `${begin} ${clip(fold(names), LONGEST_NAMES)}${many}: ${text}`
    })
    const more = all.length - MOST_NOTES
    return more > 0 ? [...all.slice(0, MOST_NOTES), `and ${more} more sentences`] : all
  }

  /** Returns the name here of an object there: the same, unless it is taken or no name here. */
  named(type: TypeName, given: string): string {
    const known = this.#names.get(`${type} ${given}`)
    if (known !== undefined) return known
    const like = given.replace(/[^\w-]+/g, '-').replace(/^[^A-Za-z0-9]+/, '')
    const isName = isObjectName(given) && (type !== 'network' || isNetworkName(given))
    const begin = isName ? given : like.slice(0, 56) || type
    let name = begin
    for (let i = 2; this.#names.has(`${type}/${name}`); i++) name = `${begin.slice(0, 56)}-${i}`
    this.#names.set(`${type}/${name}`, '').set(`${type} ${given}`, name)
    if (name !== given) this.note(type, given, `is called ${name} here`)
    return name
  }

  /** Adds an object, or to one that is there the fields that it lacks; returns its name. */
  object(type: TypeName, given: string, fields: Fields): string {
    return this.#put(type, this.named(type, given), fields)
  }

  #put(type: TypeName, name: string, fields: Fields): string {
    const all = this.#objects.get(type) ?? new Map<string, Fields>()
    this.#objects.set(type, all.set(name, { ...fields, ...all.get(name) }))
    return name
  }

  /** Returns the name of an image, which is added if it is not there; it may tell of its distribution. */
  image(given: string, fields: Fields = {}): string {
    const [distribution = undefined] =
      /ubuntu|debian|suse|sles|rocky|fedora|centos|rhel|alma/i.exec(given) ?? []
    return this.object('osimage', given, { distribution: distribution?.toLowerCase(), ...fields })
  }

  /** Returns the name of the BMC set-up with these fields, which is added if there is none. */
  bmc(fields: Fields): string {
    const text = JSON.stringify(fields)
    const name = this.#bmcs.get(text) ?? this.object('bmcsetup', `bmc${this.#bmcs.size + 1}`, fields)
    this.#bmcs.set(text, name)
    return name
  }

  /** Adds the network of a prefix, unless it is there. */
  network(prefix: string, given: string, fields: Fields = {}): Network {
    const known = this.#networks.get(prefix)
    if (known) return known
    const isTaken = this.#names.has(`network ${given}`)
    const name = this.named('network', isTaken ? `${given}-${prefix.replace(/[./]/g, '-')}` : given)
    const network = { name, fields: { ...fields, network: prefix }, gateways: new Map<string, number>() }
    this.#networks.set(prefix, network)
    this.#lengths.add(prefix.replace(/.*\//, ''))
    return network
  }

  /** Adds a node. The first label of its name is its name here, the rest its domain. */
  machine(machine: Machine): void {
    const { name: given } = machine
    const [name = '', ...domain] = given.toLowerCase().split('.')
    const other = this.#machines.has(name) ? `${name} is there already, rename one of them` : undefined
    const why = isNodeName(name) ? other : `its name must be ${nodeNameRule}`
    if (why !== undefined) {
      this.note('node', given, `is left out: ${why}`)
      return
    }
    if (name !== given) this.note('node', given, 'has its host name alone as its name here')
    const kernel = machine.kernel.filter(word => {
      const why = problemOf(() => noInit(kernelOptions.read(word)), `must be ${kernelOptions.expected}`)
      if (why !== undefined) this.note('node', name, `field "kerneloptions" ${why}: the word is left out`)
      return why === undefined
    })
    const variables = Object.entries(machine.variables).filter(([key, text]) => {
      const why = text === undefined ? '' : problemOf(() => variablesField.type.read({ [key]: text }))
      if (why) this.note('node', name, `field "variables" ${why}: it is left out`)
      return why === undefined
    })
    const fields = { domain: domain.join('.'), ...machine.fields }
    this.#machines.set(name, { ...machine, kernel, fields, variables: Object.fromEntries(variables) })
  }

  /** Returns the document for `POST /config/cluster/import`. */
  document(): JsonObject {
    const groups = new Map<string, [string, Machine][]>()
    for (const entry of this.#machines) {
      const { group } = entry[1]
      addTo(groups, group === undefined ? '' : this.named('group', group), entry)
      for (const card of entry[1].cards) this.#place(entry[0], card)
    }
    const nodes: (readonly [string, JsonObject])[] = []
    for (const [group, members] of groups) {
      const shared = group === '' ? nothing : this.#shared(members.map(([, one]) => one))
      const { variables, kernel, networks, options } = shared
      const interfaces = Object.entries(networks).map(([name, network]) => ({
        ...{ interface: name, network },
        ...(options[name] === undefined ? {} : { options: options[name] })
      })) as JsonObject[]
      const own = { variables: variables as JsonObject, kerneloptions: kernel.join(' '), interfaces }
      if (group !== '') this.#put('group', group, { ...shared.fields, ...own })
      for (const [name, one] of members) nodes.push([name, this.#node(name, one, group, shared)])
    }
    for (const { name, fields, gateways } of this.#networks.values()) {
      const gateway = fields.gateway ?? mostFrequent(gateways)
      for (const other of gateways.keys())
        if (other !== gateway)
          this.note('network', name, `gateway ${other} is left out, for it has ${gateway}`)
      this.#put('network', name, { ...fields, gateway })
    }
    const config = [...this.#objects].map(([type, all]) => {
      const table =
        type === 'group' ? [...objectTypes.group.fields, groupInterfaces] : objectTypes[type].fields
      const read = [...all].map(([name, fields]) => [name, this.#checked(type, name, table, fields)])
      return [type, Object.fromEntries(read)]
    })
    return { config: { ...Object.fromEntries(config), node: Object.fromEntries(nodes) } }
  }

  /** Adds the network of an address. Without a netmask it is one that holds the address, or one of /24. */
  #place(node: string, { name, address, netmask, network, gateway }: Card): void {
    if (address === undefined) return
    const prefix = netmask === undefined ? this.#prefixWith(address) : prefixOf(address, netmask)
    if (prefix === undefined)
      this.note('node', node, `interface ${name} has no netmask: 255.255.255.0 is taken, correct it`)
    const wanted = prefix ?? prefixOf(address, '24')
    const { gateways } = wanted === undefined ? {} : this.network(wanted, network)
    if (gateway !== undefined && gateways) increment(gateways, gateway)
  }

  #prefixWith(address: string): string | undefined {
    const all = [...this.#lengths].map(length => prefixOf(address, length) ?? '')
    return all.find(one => this.#networks.has(one))
  }

  #networkOf({ address, netmask, network, dhcp = false }: Card): string | undefined {
    if (address === undefined) return dhcp ? this.#names.get(`network ${network}`) : undefined
    return this.#networks.get((netmask && prefixOf(address, netmask)) ?? this.#prefixWith(address) ?? '')
      ?.name
  }

  #shared(members: readonly Machine[]): Shared {
    const ofGroup = new Set<string>(objectTypes.group.fields.map(({ name }) => name))
    const fields = Object.entries(common(members.map(one => one.fields)))
    const of = (value: (card: Card) => string | undefined) =>
      members.map(({ cards }) => Object.fromEntries(cards.map(card => [card.name, value(card)])))
    const networks = common(of(card => this.#networkOf(card)))
    const words = of(card => card.words.join(' '))
    const options = Object.entries(common(words, true))
    return {
      fields: Object.fromEntries(fields.filter(([name]) => ofGroup.has(name) && name !== 'comment')),
      variables: common(members.map(one => one.variables)),
      kernel: members.map(one => one.kernel).reduce(sameBegin),
      networks,
      options: Object.fromEntries(options.filter(([name]) => name in networks))
    }
  }

  #node(
    name: string,
    { fields, variables, kernel, cards }: Machine,
    group: string,
    shared: Shared
  ): JsonObject {
    const interfaces = cards.map(card => {
      const entry = {
        ...{ interface: card.name, network: this.#networkOf(card), ipaddress: card.address },
        ...{ macaddress: card.mac, options: shared.options[card.name] ? '' : card.words.join(' ') }
      }
      const own = Object.hasOwn(shared.networks, card.name) ? {} : { own: true }
      return { ...this.#checked('node', name, interfaceFields, entry), ...own }
    })
    const own = {
      ...{ ...without(fields, shared.fields), group },
      variables: without(variables, shared.variables) as JsonObject,
      kerneloptions: kernel.slice(shared.kernel.length).join(' ')
    }
    return { ...this.#checked('node', name, objectTypes.node.fields, own), interfaces }
  }

  /** Returns the fields that a table takes; notes tell of the others. */
  #checked(kind: string, name: string, table: Table, given: Fields): JsonObject {
    const set = Object.entries(given).filter(([, value]) => value !== undefined && value !== '')
    const values = readTable(table, Object.fromEntries(set) as JsonObject, (_path, message) =>
      this.note(kind, name, `${message}: it is left out`)
    )
    const fields = storedFields(table, values)
    for (const why of limitViolations(table, undefined, fields)) this.note(kind, name, why)
    return fields as JsonObject
  }
}
