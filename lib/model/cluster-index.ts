import { cachedPerObject } from '../base/concurrency.js'
import { getOrAdd } from '../base/lists.js'
import { compareNames, Sorted, SortedNames } from '../store/order.js'
import type { Index } from '../store/types.js'
import { type Address, AddressSet, contains, type Prefix, parsePrefix, toAddress } from './address.js'
import type { TypeName } from './docs.js'
import type { Table } from './field.js'
import { splitNumber } from './names.js'
import type { InterfaceDoc } from './types/interface.js'

/** An attachment to a network: an interface of a node, or a device as a whole. */
export interface Connection {
  /** Undefined for a switch or another device, which has only one. */
  readonly interface?: string
  readonly network?: string
  readonly ipaddress?: string
  readonly macaddress?: string
}

export interface Files {
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly imagefile?: string
  /** Of a pack. */
  readonly rootfiles?: readonly string[]
}

/** Extracts the index entries from the objects of one type; each depends on its object alone. */
export interface IndexedType<D> {
  /** For messages, such as "OS image". */
  readonly title?: string
  readonly fields?: Table
  connections?(doc: D): readonly Connection[]
  memberOf?(doc: D): string | undefined
  network?(doc: D): { readonly network: string; readonly gateway?: string }
  files?(doc: D): Files
  /** Returns lookup keys. All types share them, so a key names its kind ("tag/v1"). */
  lookupKeys?(doc: D): readonly string[]
}

export interface Owner extends Ref {
  readonly title: string
  readonly interface: string | undefined
}

/** Returns an owner for a message, such as "node node001 (BMC)". */
export const ownerText = ({ title, name, interface: on }: Owner) =>
  `${title} ${name}${on === undefined ? '' : ` (${on})`}`

type OwnedConnection = Connection & { readonly owner: Owner }

/** Returns a text that is equal for connections with equal index entries. */
const connectionKey = ({ interface: on = '', macaddress = '', ipaddress = '' }: OwnedConnection) =>
  `${macaddress} ${ipaddress} ${on}`

/** Whether a node has no MAC to boot with. */
const isFree = (connections: readonly Connection[]) =>
  !connections.some(entry => entry.macaddress !== undefined && !isBmc(entry))

/** The nodes of one group in three orders, for the questions of the boot path (rules 4.3). */
interface Members {
  readonly all: SortedNames
  /** Nodes without a MAC on any interface but the BMC. */
  readonly free: SortedNames
  /** In the order of the number at the end of the name, then of the name. */
  readonly numbered: Sorted<string>
}

/** Whether an interface is that of the BMC, which has this name by convention. */
export const isBmc = ({ interface: name }: { readonly interface?: string | undefined }) =>
  name?.length === 3 && name.toUpperCase() === 'BMC'

/** Returns the MACs of the interfaces that boot. */
export const macsOf = (interfaces: readonly InterfaceDoc[] = []): string[] =>
  interfaces.flatMap(entry => (isBmc(entry) ? [] : (entry.macaddress ?? [])))

const byNumber = (a: string, b: string) => {
  const [x, y] = [Number(splitNumber(a).digits), Number(splitNumber(b).digits)]
  return x - y || compareNames(a, b)
}

/** Maps keys to owners, with little memory for the usual single owner and constant time for many. */
class Owners<K, V> {
  readonly #first = new Map<K, V>()
  /** The other owners by their identity. */
  readonly #others = new Map<K, Map<string, V>>()

  constructor(private readonly identity: (owner: V) => string) {}

  has(key: K): boolean {
    return this.#first.has(key)
  }

  of(key: K): readonly V[] {
    const first = this.#first.get(key)
    if (first === undefined) return []
    const others = this.#others.get(key)
    return others ? [first, ...others.values()] : [first]
  }

  /** Returns each key with its first owner. */
  entries(): Iterable<[K, V]> {
    return this.#first
  }

  /** Adds or removes an owner. */
  set(key: K | undefined, owner: V, present: boolean): void {
    if (key === undefined) return
    const first = this.#first.get(key)
    const others = this.#others.get(key)
    const identity = this.identity(owner)
    if (first === undefined || this.identity(first) === identity) {
      const [next] = present ? [owner] : (others?.values() ?? [])
      if (next === undefined) this.#first.delete(key)
      else this.#first.set(key, next)
      if (!present && next !== undefined) others?.delete(this.identity(next))
    } else if (!present) others?.delete(identity)
    else if (others) others.set(identity, owner)
    else this.#others.set(key, new Map([[identity, owner]]))
    if (others?.size === 0) this.#others.delete(key)
  }
}

const ownerKey = (owner: Owner) => `${refKey(owner)}/${owner.interface ?? ''}`
const itself = (name: string) => name

/** Looks objects up by something other than their name. An update takes time independent of their number. */
export class ClusterIndex implements Index {
  // Not Owners: when thousands of nodes leave a group in order, each makes it search for the next first one.
  // No test shows that, as tests do not depend on the speed of the machine.
  readonly #users = new Map<string, Map<string, Ref>>()
  readonly #macs = new Owners<string, Owner>(ownerKey)
  readonly #addresses = new Owners<Address, Owner>(ownerKey)
  readonly #gateways = new Owners<Address, string>(itself)
  readonly #listed = new Owners<string, string>(itself)
  readonly #members = new Map<string, Members>()
  readonly #files = { boot: new Owners<string, string>(itself), pack: new Owners<string, string>(itself) }
  readonly usedAddresses = new AddressSet()
  readonly networks = new Map<string, Prefix>()

  constructor(private readonly types: Readonly<Record<string, IndexedType<object>>>) {}

  referrers(ref: Ref): readonly Ref[] {
    return [...(this.#users.get(refKey(ref))?.values() ?? [])]
  }

  macOwners(mac: string): readonly Owner[] {
    return this.#macs.of(mac)
  }

  addressOwners(address: Address): readonly Owner[] {
    return this.#addresses.of(address)
  }

  /** Yields every address in use inside a prefix with the name of its first owner, unordered. */
  *devicesIn(prefix: Prefix): Generator<[Address, string]> {
    for (const [address, { name }] of this.#addresses.entries())
      if (contains(prefix, address)) yield [address, name]
  }

  gatewayOf(address: Address): string | undefined {
    const [network] = this.#gateways.of(address)
    return network
  }

  /** Returns the names of objects with this lookup key, unordered. */
  lookup(key: string): readonly string[] {
    return this.#listed.of(key)
  }

  connectionsOf(ref: Ref, doc: object | undefined): readonly OwnedConnection[] {
    const indexed = this.types[ref.type]
    const title = indexed?.title ?? ref.type
    const connections = (doc && indexed?.connections?.(doc)) ?? []
    const { type, name } = ref
    // Named one by one: a spread gives each owner its own hidden class, which costs memory and time.
    return connections.map(entry => ({ ...entry, owner: { type, name, title, interface: entry.interface } }))
  }

  members(group: string): Members | undefined {
    return this.#members.get(group)
  }

  /** Whether a file is a kernel or initramfs (`boot`) or packed image (`pack`), also of a kept older pack. */
  isImageFile(kind: 'boot' | 'pack', name: string): boolean {
    return this.#files[kind].has(name)
  }

  /** Whether an image or a tag names a file; kept packs do not count. */
  isFileReferenced(kind: 'boot' | 'pack', name: string): boolean {
    for (const user of this.#files[kind].of(name)) if (!user.startsWith('pack/')) return true
    return false
  }

  update(type: string, name: string, before: object | undefined, after: object | undefined): void {
    const indexed = this.types[type]
    if (!indexed) return
    const ref = { type, name } as Ref
    this.#follow(indexed, ref, before, after)
    if (before) this.#set(indexed, ref, before, false)
    if (after) this.#set(indexed, ref, after, true)
  }

  /** Updates references, connections and members, the costly part of a node, by the difference alone. */
  #follow(
    indexed: IndexedType<object>,
    ref: Ref,
    before: object | undefined,
    after: object | undefined
  ): void {
    const shares = (doc: object | undefined) => ({
      mentions: doc && indexed.fields ? referencesOf(indexed.fields, doc) : [],
      connections: this.connectionsOf(ref, doc)
    })
    const [old, now] = [shares(before), shares(after)]
    const mentioned = new Set(old.mentions.map(refKey))
    const stays = new Set(now.mentions.map(refKey))
    for (const target of old.mentions) if (!stays.has(refKey(target))) this.#reference(ref, target, false)
    for (const target of now.mentions) if (!mentioned.has(refKey(target))) this.#reference(ref, target, true)
    const isIn = (there: readonly OwnedConnection[]) => {
      const keys = new Set(there.map(connectionKey))
      return (one: OwnedConnection) => keys.has(connectionKey(one))
    }
    const [wasThere, isThere] = [isIn(old.connections), isIn(now.connections)]
    for (const one of old.connections) if (!isThere(one)) this.#connection(one.owner, one, false)
    for (const one of now.connections) if (!wasThere(one)) this.#connection(one.owner, one, true)
    const [from, to] = [before && indexed.memberOf?.(before), after && indexed.memberOf?.(after)]
    if (from === to && isFree(old.connections) === isFree(now.connections)) return
    if (from !== undefined) this.#member(from, ref.name, old.connections, false)
    if (to !== undefined) this.#member(to, ref.name, now.connections, true)
  }

  /** Adds or removes an object's other index entries. */
  #set(indexed: IndexedType<object>, ref: Ref, doc: object, present: boolean): void {
    const network = indexed.network?.(doc)
    if (network) this.#network(ref.name, network, present)
    const user = refKey(ref)
    const { kernelfile, initrdfile, imagefile, rootfiles = [] } = indexed.files?.(doc) ?? {}
    for (const file of [kernelfile, initrdfile]) this.#files.boot.set(file, user, present)
    for (const file of [imagefile, ...rootfiles]) this.#files.pack.set(file, user, present)
    for (const key of indexed.lookupKeys?.(doc) ?? []) this.#listed.set(key, ref.name, present)
  }

  #reference(ref: Ref, target: Ref, present: boolean): void {
    const users = getOrAdd(this.#users, refKey(target), () => new Map<string, Ref>())
    if (present) users.set(refKey(ref), ref)
    else users.delete(refKey(ref))
    if (users.size === 0) this.#users.delete(refKey(target))
  }

  #member(group: string, name: string, connections: readonly Connection[], present: boolean): void {
    let members = this.#members.get(group)
    if (!present) {
      for (const names of members ? [members.all, members.free, members.numbered] : []) names.remove(name)
      if (members?.all.values.length === 0) this.#members.delete(group)
      return
    }
    if (!members) {
      members = { all: new SortedNames(), free: new SortedNames(), numbered: new Sorted(byNumber) }
      this.#members.set(group, members)
    }
    members.all.add(name)
    members.numbered.add(name)
    if (isFree(connections)) members.free.add(name)
  }

  #connection(owner: Owner, { macaddress, ipaddress }: Connection, present: boolean): void {
    this.#macs.set(macaddress, owner, present)
    if (ipaddress === undefined) return
    const address = toAddress(ipaddress)
    this.#addresses.set(address, owner, present)
    if (this.#addresses.has(address)) this.usedAddresses.add(address)
    else this.usedAddresses.remove(address)
  }

  #network(name: string, network: { network: string; gateway?: string }, present: boolean): void {
    const prefix = parsePrefix(network.network)
    if (present && prefix) this.networks.set(name, prefix)
    else this.networks.delete(name)
    this.#gateways.set(network.gateway === undefined ? undefined : toAddress(network.gateway), name, present)
  }
}

export interface Ref {
  readonly type: TypeName
  readonly name: string
}

/** A reference to an object; with `soft` the object need not exist. */
export interface ObjectReference extends Ref {
  readonly soft: boolean
}

/** Unambiguous, since no name holds a slash. */
const refKey = (ref: Ref) => `${ref.type}/${ref.name}`

type Fields = Readonly<Record<string, unknown>> & { readonly interfaces?: readonly InterfaceDoc[] }

type Referring = Table[number] & { readonly refers: TypeName }

/** The fields of a table that name objects; the start needs them for each object. */
const referring = cachedPerObject((table: Table) =>
  table.filter((field): field is Referring => field.refers !== undefined)
)

/** Returns the objects that a stored object names, each once (rules 3.2). */
export function referencesOf(table: Table, doc: object): ObjectReference[] {
  const fields = doc as Fields
  const found = new Map<string, ObjectReference>()
  const add = (type: TypeName, name: unknown, soft = false) => {
    if (typeof name !== 'string') return
    const mention = { type, name, soft }
    found.set(refKey(mention), mention)
  }
  for (const { name, refers, mayDangle } of referring(table)) {
    const value = fields[name]
    if (!Array.isArray(value)) add(refers, value, mayDangle)
    else for (const one of value) add(refers, one, mayDangle)
  }
  for (const entry of fields.interfaces ?? []) add('network', entry.network)
  return [...found.values()]
}

/** Returns the object with every reference to `from` changed to `to`. */
export function renameReference<D extends object>(table: Table, doc: D, from: Ref, to: string): D {
  const fields: Record<string, unknown> = { ...(doc as Fields) }
  const renamed = (value: unknown) => (value === from.name ? to : value)
  for (const { name, refers } of table) {
    if (refers !== from.type || fields[name] === undefined) continue
    const value = fields[name]
    fields[name] = Array.isArray(value) ? value.map(renamed) : renamed(value)
  }
  const interfaces = (doc as Fields).interfaces
  if (interfaces && from.type === 'network')
    fields.interfaces = interfaces.map(entry =>
      entry.network === from.name ? { ...entry, network: to } : entry
    )
  return fields as D
}
