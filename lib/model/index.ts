import { compareNames, Sorted, SortedNames } from '../store/order.js'
import type { Index } from '../store/types.js'
import { type Address, contains, type Prefix, parsePrefix, toAddress } from './address.js'
import { AddressSet } from './address-set.js'
import type { Table } from './field.js'
import { splitNumber } from './names.js'
import { type Ref, referencesOf, refKey } from './references.js'

/** What an object has on a network: an interface of a node, or a device as a whole. */
export interface Connection {
  /** Undefined for a switch or another device, which has but one. */
  readonly interface?: string
  readonly network?: string
  readonly ipaddress?: string
  readonly macaddress?: string
}

/** Files that an image, a tag or a pack names. */
export interface Files {
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly imagefile?: string
}

/** What the indexes take from the objects of one type; everything is worked out from the object alone. */
export interface IndexedType<D> {
  /** "OS image": for messages. */
  readonly title?: string
  readonly fields?: Table
  connections?(doc: D): readonly Connection[]
  /** The group that it is a member of. */
  memberOf?(doc: D): string | undefined
  /** The network that it is. */
  network?(doc: D): { readonly network: string; readonly gateway?: string }
  files?(doc: D): Files
}

/** Who has an address or a MAC. */
export interface Owner extends Ref {
  readonly title: string
  readonly interface: string | undefined
}

/** An owner for a message: "node node001 (BMC)". */
export const ownerText = ({ title, name, interface: on }: Owner) =>
  `${title} ${name}${on === undefined ? '' : ` (${on})`}`

/** The nodes of one group, sorted three ways for the questions the boot path asks (rules 4.3). */
export interface Members {
  readonly all: SortedNames
  /** Those without a MAC on any interface but the BMC's. */
  readonly free: SortedNames
  /** By the number at the end of the name, then by name. */
  readonly numbered: Sorted<string>
}

/** By convention the interface of a node's BMC carries this name. */
export const isBmc = (entry: { readonly interface?: string }) => entry.interface?.toUpperCase() === 'BMC'

const byNumber = (a: string, b: string) => {
  const [x, y] = [Number(splitNumber(a).digits), Number(splitNumber(b).digits)]
  return x - y || compareNames(a, b)
}

/** Who has what. Hardly anything has more than one owner: a list of them is enough. */
class Owners<K, V> {
  readonly #all = new Map<K, readonly V[]>()
  readonly #same: (a: V, b: V) => boolean

  constructor(same: (a: V, b: V) => boolean = (a, b) => a === b) {
    this.#same = same
  }

  of(key: K): readonly V[] {
    return this.#all.get(key) ?? []
  }

  entries(): Iterable<[K, readonly V[]]> {
    return this.#all
  }

  /** Adds an owner, or takes it away. */
  set(key: K | undefined, owner: V, present: boolean): void {
    if (key === undefined) return
    const others = this.of(key).filter(other => !this.#same(other, owner))
    if (present) this.#all.set(key, [...others, owner])
    else if (others.length > 0) this.#all.set(key, others)
    else this.#all.delete(key)
  }
}

const isSame = (a: Owner, b: Owner) => refKey(a) === refKey(b) && a.interface === b.interface

/** What is looked up by something else than a name; kept with every change, in time independent of its size. */
export class ClusterIndex implements Index {
  readonly #types: Readonly<Record<string, IndexedType<object>>>
  readonly #users = new Map<string, Map<string, Ref>>()
  readonly #macs = new Owners<string, Owner>(isSame)
  readonly #addresses = new Owners<Address, Owner>(isSame)
  readonly #gateways = new Owners<Address, string>()
  readonly #members = new Map<string, Members>()
  readonly #files = { boot: new Owners<string, string>(), pack: new Owners<string, string>() }
  /** Every address that a device has. */
  readonly taken = new AddressSet()
  /** Networks with their parsed prefix. */
  readonly networks = new Map<string, Prefix>()

  constructor(types: Readonly<Record<string, IndexedType<object>>>) {
    this.#types = types
  }

  /** The objects that name this one. */
  users(ref: Ref): readonly Ref[] {
    return [...(this.#users.get(refKey(ref))?.values() ?? [])]
  }

  isUsed(ref: Ref): boolean {
    return this.#users.has(refKey(ref))
  }

  macOwners(mac: string): readonly Owner[] {
    return this.#macs.of(mac)
  }

  addressOwners(address: Address): readonly Owner[] {
    return this.#addresses.of(address)
  }

  /** Every address in use inside a prefix, with the name of its first owner, in no order. */
  *devicesIn(prefix: Prefix): Generator<[Address, string]> {
    for (const [address, [owner]] of this.#addresses.entries())
      if (owner && contains(prefix, address)) yield [address, owner.name]
  }

  /** Names of the networks whose gateway this is. */
  gatewayOf(address: Address): readonly string[] {
    return this.#gateways.of(address)
  }

  /** What an object has on networks, each with its owner; `doc` is the object. */
  connectionsOf(ref: Ref, doc: object | undefined): readonly (Connection & { readonly owner: Owner })[] {
    const indexed = this.#types[ref.type]
    const title = indexed?.title ?? ref.type
    const connections = (doc && indexed?.connections?.(doc)) ?? []
    return connections.map(entry => ({ ...entry, owner: { ...ref, title, interface: entry.interface } }))
  }

  members(group: string): Members | undefined {
    return this.#members.get(group)
  }

  /**
   * Whether this file is a kernel or initramfs (`boot`) or a packed image (`pack`) of an image or a tag, or of an
   * older pack that is kept for nodes still installing it.
   */
  isImageFile(kind: 'boot' | 'pack', name: string): boolean {
    return this.#files[kind].of(name).length > 0
  }

  /** Whether an image or a tag, not only a kept pack, names this file. */
  isNamed(kind: 'boot' | 'pack', name: string): boolean {
    return this.#files[kind].of(name).some(user => !user.startsWith('pack/'))
  }

  update(type: string, name: string, before: object | undefined, after: object | undefined): void {
    const indexed = this.#types[type]
    if (!indexed) return
    const ref = { type, name } as Ref
    if (before) this.#set(indexed, ref, before, false)
    if (after) this.#set(indexed, ref, after, true)
  }

  /** Adds what an object gives to the indexes, or takes it away. */
  #set(indexed: IndexedType<object>, ref: Ref, doc: object, present: boolean): void {
    if (indexed.fields) this.#references(ref, indexed.fields, doc, present)
    const connections = this.connectionsOf(ref, doc)
    for (const { owner, ...entry } of connections) this.#connection(owner, entry, present)
    const group = indexed.memberOf?.(doc)
    if (group !== undefined) this.#member(group, ref.name, connections, present)
    const network = indexed.network?.(doc)
    if (network) this.#network(ref.name, network, present)
    const files = indexed.files?.(doc)
    if (files) this.#named(refKey(ref), files, present)
  }

  #references(ref: Ref, table: Table, doc: object, present: boolean): void {
    for (const target of referencesOf(table, doc)) {
      const key = refKey(target)
      let users = this.#users.get(key)
      if (present) {
        if (!users) {
          users = new Map()
          this.#users.set(key, users)
        }
        users.set(refKey(ref), ref)
      } else if (users?.delete(refKey(ref)) && users.size === 0) this.#users.delete(key)
    }
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
    const hasMac = connections.some(entry => entry.macaddress !== undefined && !isBmc(entry))
    if (!hasMac) members.free.add(name)
  }

  #connection(owner: Owner, { macaddress, ipaddress }: Connection, present: boolean): void {
    this.#macs.set(macaddress, owner, present)
    if (ipaddress === undefined) return
    const address = toAddress(ipaddress)
    this.#addresses.set(address, owner, present)
    if (this.#addresses.of(address).length > 0) this.taken.add(address)
    else this.taken.remove(address)
  }

  #network(name: string, network: { network: string; gateway?: string }, present: boolean): void {
    const prefix = parsePrefix(network.network)
    if (present && prefix) this.networks.set(name, prefix)
    else this.networks.delete(name)
    this.#gateways.set(network.gateway === undefined ? undefined : toAddress(network.gateway), name, present)
  }

  #named(user: string, { kernelfile, initrdfile, imagefile }: Files, present: boolean): void {
    for (const file of [kernelfile, initrdfile]) this.#files.boot.set(file, user, present)
    this.#files.pack.set(imagefile, user, present)
  }
}
