import { compareNames, Sorted, SortedNames } from '../store/order.js'
import type { Index } from '../store/types.js'
import { type Address, contains, type Prefix, parsePrefix, toAddress } from './address.js'
import { AddressSet } from './address-set.js'
import type { TypeName } from './field.js'
import { splitNumber } from './names.js'
import { type Ref, referencesOf, refKey } from './references.js'
import type {
  DeviceDoc,
  InterfaceDoc,
  NetworkDoc,
  NodeDoc,
  OsimageDoc,
  OsimagetagDoc,
  PackDoc
} from './tables.js'
import { objectTypes } from './types.js'

/** Who has an address or a MAC. */
export interface Owner extends Ref {
  /** Undefined for a switch or another device, which has but one. */
  readonly interface: string | undefined
}

/** An owner for a message: "node node001 (BMC)". */
export const ownerText = ({ type, name, interface: on }: Owner) =>
  `${type} ${name}${on === undefined ? '' : ` (${on})`}`

/** The nodes of one group, sorted three ways for the questions the boot path asks (rules 4.3). */
export interface Members {
  readonly all: SortedNames
  /** Those without a MAC on any interface but the BMC's. */
  readonly free: SortedNames
  /** By the number at the end of the name, then by name. */
  readonly numbered: Sorted<string>
}

type Pinned = Pick<OsimageDoc, 'kernelfile' | 'initrdfile' | 'imagefile'>

/** Before the name of a pack among those who name a file: no name of an image or a tag begins so. */
const keptPack = 'pack/'

/** By convention the interface of a node's BMC carries this name. */
export const isBmc = (entry: { readonly interface: string }) => entry.interface.toUpperCase() === 'BMC'

const byNumber = (a: string, b: string) => {
  const [x, y] = [Number(splitNumber(a).digits), Number(splitNumber(b).digits)]
  return x - y || compareNames(a, b)
}

const hasMac = (node: NodeDoc) =>
  (node.interfaces ?? []).some(entry => entry.macaddress !== undefined && !isBmc(entry))

function add<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}

function drop<K, V>(map: Map<K, V[]>, key: K, is: (value: V) => boolean): void {
  const rest = (map.get(key) ?? []).filter(value => !is(value))
  if (rest.length > 0) map.set(key, rest)
  else map.delete(key)
}

/** What is looked up by something else than a name; kept with every change, in time independent of its size. */
export class ClusterIndex implements Index {
  readonly #users = new Map<string, Map<string, Ref>>()
  readonly #macs = new Map<string, Owner[]>()
  readonly #addresses = new Map<Address, Owner[]>()
  readonly #gateways = new Map<Address, string[]>()
  readonly #members = new Map<string, Members>()
  readonly #files = { boot: new Map<string, string[]>(), pack: new Map<string, string[]>() }
  /** Every address that a device has. */
  readonly taken = new AddressSet()
  /** Networks with their parsed prefix. */
  readonly networks = new Map<string, Prefix>()

  /** The objects that name this one. */
  users(ref: Ref): readonly Ref[] {
    return [...(this.#users.get(refKey(ref))?.values() ?? [])]
  }

  isUsed(ref: Ref): boolean {
    return this.#users.has(refKey(ref))
  }

  macOwners(mac: string): readonly Owner[] {
    return this.#macs.get(mac) ?? []
  }

  addressOwners(address: Address): readonly Owner[] {
    return this.#addresses.get(address) ?? []
  }

  /** Every address in use inside a prefix, with the name of its first owner, in no order. */
  *devicesIn(prefix: Prefix): Generator<[Address, string]> {
    for (const [address, [owner]] of this.#addresses)
      if (owner && contains(prefix, address)) yield [address, owner.name]
  }

  /** Names of the networks whose gateway this is. */
  gatewayOf(address: Address): readonly string[] {
    return this.#gateways.get(address) ?? []
  }

  members(group: string): Members | undefined {
    return this.#members.get(group)
  }

  /**
   * Whether this file is a kernel or initramfs (`boot`) or a packed image (`pack`) of an image or a tag, or of an
   * older pack that is kept for nodes still installing it.
   */
  isImageFile(kind: 'boot' | 'pack', name: string): boolean {
    return this.#files[kind].has(name)
  }

  /** Whether an image or a tag, not only a kept pack, names this file. */
  isNamed(kind: 'boot' | 'pack', name: string): boolean {
    return this.#files[kind].get(name)?.some(user => !user.startsWith(keptPack)) ?? false
  }

  update(type: string, name: string, before: object | undefined, after: object | undefined): void {
    if (type === 'pack')
      this.#image(
        `${keptPack}${name}`,
        before && { ...(before as PackDoc), imagefile: name },
        after && { ...(after as PackDoc), imagefile: name }
      )
    if (type === 'osimagetag')
      this.#image(name, before as OsimagetagDoc | undefined, after as OsimagetagDoc | undefined)
    if (!Object.hasOwn(objectTypes, type)) return
    const ref: Ref = { type: type as TypeName, name }
    if (before) this.#references(ref, before, false)
    if (after) this.#references(ref, after, true)
    if (type === 'node') this.#node(ref, before as NodeDoc | undefined, after as NodeDoc | undefined)
    if (type === 'switch' || type === 'otherdev') {
      if (before) this.#device(ref, before as DeviceDoc, false)
      if (after) this.#device(ref, after as DeviceDoc, true)
    }
    if (type === 'network')
      this.#network(name, before as NetworkDoc | undefined, after as NetworkDoc | undefined)
    if (type === 'osimage')
      this.#image(name, before as OsimageDoc | undefined, after as OsimageDoc | undefined)
  }

  #references(ref: Ref, doc: object, present: boolean): void {
    for (const target of referencesOf(ref.type, doc)) {
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

  #node(ref: Ref, before: NodeDoc | undefined, after: NodeDoc | undefined): void {
    for (const entry of before?.interfaces ?? []) this.#device(ref, entry, false)
    for (const entry of after?.interfaces ?? []) this.#device(ref, entry, true)
    if (before?.group !== undefined) {
      const members = this.#members.get(before.group)
      for (const names of members ? [members.all, members.free, members.numbered] : []) names.remove(ref.name)
      if (members?.all.values.length === 0) this.#members.delete(before.group)
    }
    if (after?.group !== undefined) {
      let members = this.#members.get(after.group)
      if (!members) {
        members = { all: new SortedNames(), free: new SortedNames(), numbered: new Sorted(byNumber) }
        this.#members.set(after.group, members)
      }
      members.all.add(ref.name)
      members.numbered.add(ref.name)
      if (!hasMac(after)) members.free.add(ref.name)
    }
  }

  #device(ref: Ref, entry: InterfaceDoc | DeviceDoc, present: boolean): void {
    const owner: Owner = { ...ref, interface: 'interface' in entry ? entry.interface : undefined }
    const isOwner = (other: Owner) => refKey(other) === refKey(ref) && other.interface === owner.interface
    if (entry.macaddress !== undefined) {
      if (present) add(this.#macs, entry.macaddress, owner)
      else drop(this.#macs, entry.macaddress, isOwner)
    }
    if (entry.ipaddress !== undefined) {
      const address = toAddress(entry.ipaddress)
      if (present) {
        add(this.#addresses, address, owner)
        this.taken.add(address)
      } else {
        drop(this.#addresses, address, isOwner)
        if (!this.#addresses.has(address)) this.taken.remove(address)
      }
    }
  }

  #network(name: string, before: NetworkDoc | undefined, after: NetworkDoc | undefined): void {
    if (before?.gateway !== undefined)
      drop(this.#gateways, toAddress(before.gateway), other => other === name)
    if (after?.gateway !== undefined) add(this.#gateways, toAddress(after.gateway), name)
    const prefix = after && parsePrefix(after.network)
    if (prefix) this.networks.set(name, prefix)
    else this.networks.delete(name)
  }

  /** An image's files, those a tag pins, or a pack's; no image's name holds the colon that is in a tag's. */
  #image(name: string, before: Pinned | undefined, after: Pinned | undefined): void {
    const files = (image: Pinned | undefined) =>
      [
        ['boot', image?.kernelfile],
        ['boot', image?.initrdfile],
        ['pack', image?.imagefile]
      ] as const
    for (const [kind, file] of files(before))
      if (file !== undefined) drop(this.#files[kind], file, other => other === name)
    for (const [kind, file] of files(after)) if (file !== undefined) add(this.#files[kind], file, name)
  }
}
