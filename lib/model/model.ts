import { isDeepStrictEqual } from 'node:util'
import { badRequest, notFound } from '../errors.js'
import type { Change } from '../store/types.js'
import type { TypeName } from './docs.js'
import { type EffectiveNode, effectiveNode, groupInForce, interfaceInForce, settingsOf } from './effective.js'
import type { Field } from './field.js'
import { isBmc, type Owner } from './index.js'
import {
  cloneDevice,
  cloneInterfaces,
  followGroup,
  mergeGroupInterfaces,
  mergeNodeInterfaces,
  type Power,
  removeNodeInterface,
  withMac
} from './interfaces.js'
import { renameReference } from './references.js'
import type { Given, GivenInterface } from './request.js'
import { checkChanges } from './rules.js'
import type { SecretBox } from './secret-box.js'
import { copySecrets, dropSecrets, moveSecrets } from './secrets.js'
import { settingsInForce } from './settings.js'
import type { ClusterDoc, DeviceDoc, Docs, GroupDoc, NodeDoc } from './tables.js'
import { removeTag, renameImageTags, tagsOf } from './tags.js'
import { abandonTrees, renameTrees } from './trees.js'
import { objectTypes } from './types.js'
import type { ClusterSettings, ClusterStore, Tx, View } from './view.js'

/** Who changes something, and from where: for the audit, and for what only an admin may do. */
export interface Actor extends Power {
  /** "user admin", "node node001", "console". */
  readonly who: string
  /** Source address. */
  readonly from: string
}

/** The daemon, where it changes something that nobody asked for. */
export const theDaemon: Actor = { who: 'svcd', from: '-', takesAddresses: false }

export interface ModelOptions {
  readonly store: Pick<ClusterStore, 'change' | 'current'>
  /** The settings of the ini. */
  readonly ini: ClusterSettings
  readonly now: () => number
  readonly box: SecretBox
  /** Called after a change is durable; what it awaits is awaited before the change is answered. */
  readonly audit: (actor: Actor, changes: readonly Change[], kind: 'change' | 'import') => Promise<void>
}

/** What stays with the machine when a node is cloned: a clone is another machine (rules 3.2). */
const machineFields = ['switch', 'switchport', 'vendor', 'assettag', 'tpm_uuid', 'tpm_pubkey', 'tpm_sha256']

/**
 * The cluster's objects and every change that can be made to them. Each change is one transaction: it is
 * there entirely, with every reference and address carried along, or not at all.
 */
export class Model {
  readonly #o: ModelOptions
  #settings: { readonly changed: ClusterDoc | undefined; readonly settings: ClusterSettings } | undefined

  constructor(options: ModelOptions) {
    this.#o = options
  }

  get view(): View {
    return this.#o.store.current
  }

  /** The cluster's settings as the ini has them. */
  get ini(): ClusterSettings {
    return this.#o.ini
  }

  get box(): SecretBox {
    return this.#o.box
  }

  /** The cluster's settings in force: the ini's, and those changed over http. */
  get cluster(): ClusterSettings {
    const changed = this.view.get('cluster', 'cluster')
    if (!this.#settings || this.#settings.changed !== changed)
      this.#settings = { changed, settings: settingsInForce(this.view, this.#o.ini) }
    return this.#settings.settings
  }

  /** A node with all that follows from its group, its network, its image and the cluster. */
  effective(node: NodeDoc, view: View = this.view): EffectiveNode {
    return effectiveNode(view, node, this.cluster)
  }

  /** Runs one change; every rule between objects holds after it, or nothing of it happened. */
  change<R>(actor: Actor, fn: (tx: Tx) => R): Promise<R> {
    return this.#commit(actor, 'change', tx => {
      const result = fn(tx)
      checkChanges(tx, this.cluster)
      return result
    })
  }

  /** Runs an import, which checks the whole state itself. */
  importWith<R>(actor: Actor, fn: (tx: Tx) => R): Promise<R> {
    return this.#commit(actor, 'import', fn)
  }

  /** Runs one change and takes it back: gives what it would return, or throws what it would throw. */
  preview<R>(fn: (tx: Tx) => R): Promise<R> {
    const takenBack = new Error('taken back')
    let result: R
    return this.#o.store
      .change(tx => {
        result = fn(tx)
        throw takenBack
      })
      .catch(error => {
        if (error !== takenBack) throw error
        return result
      })
  }

  async #commit<R>(actor: Actor, kind: 'change' | 'import', fn: (tx: Tx) => R): Promise<R> {
    let changes: readonly Change[] = []
    const result = await this.#o.store.change(tx => {
      const returned = fn(tx)
      changes = tx.changes()
      return returned
    })
    if (changes.length > 0) await this.#o.audit(actor, changes, kind)
    return result
  }

  /** The object, or 404 naming it. */
  get<K extends TypeName>(type: K, name: string, view: View = this.view): Docs[K] {
    const doc = view.get(type, name)
    if (!doc) throw notFound(`${objectTypes[type].title} ${name} does not exist`)
    return doc
  }

  /** Creates, updates or renames (rules 1.10). `also`: what else belongs to the same change. */
  save(
    type: TypeName,
    name: string,
    given: Given,
    actor: Actor,
    also?: (tx: Tx) => void
  ): Promise<{ created: boolean }> {
    return this.change(actor, tx => {
      const before = tx.get(type, name)
      if (!before && given.newName !== undefined)
        throw notFound(`${objectTypes[type].title} ${name} does not exist`)
      if (given.newName === '') throw nameless(type, name, 'is empty')
      this.#write(tx, type, name, before, given, actor)
      if (given.newName !== undefined && given.newName !== name) this.#rename(tx, type, name, given.newName)
      also?.(tx)
      return { created: !before }
    })
  }

  /**
   * Copies everything but what must be unique; fields in the request override the copy (rules 3.2). `also`: what
   * else belongs to the same change.
   */
  clone(type: TypeName, name: string, given: Given, actor: Actor, also?: (tx: Tx) => void): Promise<void> {
    const title = objectTypes[type].title
    return this.change(actor, tx => {
      const source = this.get(type, name, tx)
      if (!given.newName) throw nameless(type, name, 'is missing')
      const copy = given.newName
      if (tx.get(type, copy)) throw badRequest(`${title} ${copy} exists already`)
      if (type === 'node') {
        const fields: Record<string, unknown> = { ...source, name: copy }
        for (const field of machineFields) delete fields[field]
        tx.put('node', copy, cloneInterfaces(tx, fields as NodeDoc, this.cluster))
      } else if (type === 'switch' || type === 'otherdev')
        tx.put(type, copy, cloneDevice(tx, source as DeviceDoc, copy, this.cluster))
      else tx.put(type, copy, { ...source, name: copy })
      if (type === 'node' || type === 'group') copySecrets(tx, type, name, copy)
      const wishes = type === 'node' && given.readBack ? withoutMachine(given, source as NodeDoc) : given
      this.#write(tx, type, copy, tx.get(type, copy), wishes, actor)
      also?.(tx)
    })
  }

  /** Removes an object that nobody refers to. */
  remove(type: TypeName, name: string, actor: Actor): Promise<void> {
    return this.change(actor, tx => {
      this.get(type, name, tx)
      tx.remove(type, name)
      if (type === 'osimage') for (const { tag } of tagsOf(tx, name)) removeTag(tx, name, tag)
      if (type === 'osimage') abandonTrees(tx, name)
      if (type === 'node' || type === 'group') dropSecrets(tx, type, name)
      if (type === 'node') this.revoke(tx, name)
    })
  }

  /** Adds or changes interfaces of an object that exists; true when one of them is new (rules 1.9). */
  saveInterfaces(
    type: 'group' | 'node',
    name: string,
    interfaces: readonly GivenInterface[],
    actor: Actor
  ): Promise<boolean> {
    return this.change(actor, tx => {
      const before = this.get(type, name, tx)
      const isNew = ({ interface: wanted }: GivenInterface) =>
        !before.interfaces?.some(entry => entry.interface === wanted)
      const given = { values: new Map(), newName: undefined, interfaces, override: false, readBack: false }
      this.#write(tx, type, name, before, given, actor)
      return interfaces.some(isNew)
    })
  }

  removeGroupInterface(name: string, wanted: string, actor: Actor): Promise<void> {
    return this.change(actor, tx => {
      const group = this.get('group', name, tx)
      const left = (group.interfaces ?? []).filter(entry => entry.interface !== wanted)
      if (left.length === (group.interfaces ?? []).length)
        throw notFound(`group ${name} has no interface ${wanted}`)
      const { interfaces: _, ...rest } = group
      this.#putGroup(tx, group, left.length > 0 ? { ...rest, interfaces: left } : rest)
    })
  }

  removeNodeInterface(name: string, wanted: string, actor: Actor): Promise<void> {
    return this.change(actor, tx => {
      tx.put('node', name, removeNodeInterface(tx, this.get('node', name, tx), wanted))
    })
  }

  /** Who has a MAC that a machine boots with; 400 for the MAC of a BMC, which boots nothing. */
  machineWith(tx: Tx, mac: string): Owner | undefined {
    const [owner] = tx.index.macOwners(mac)
    if (owner?.interface !== undefined && isBmc({ interface: owner.interface }))
      throw badRequest(`MAC ${mac} belongs to the BMC of node ${owner.name}`)
    return owner
  }

  /**
   * Gives a MAC to a node's provision interface inside a transaction; a former owner loses it (rules 4.3,
   * 4.4). Returns the former owner's name.
   */
  moveMac(tx: Tx, node: NodeDoc, mac: string): string | undefined {
    const owner = this.machineWith(tx, mac)
    if (owner?.type === 'node' && owner.name === node.name) return undefined
    const former = owner?.type === 'node' ? tx.get('node', owner.name) : undefined
    if (former && owner?.interface !== undefined)
      tx.put('node', former.name, withMac(former, owner.interface, null))
    tx.put('node', node.name, withMac(node, this.effective(node, tx).settings.provision_interface, mac))
    return former?.name
  }

  /** A new member of a group, made because a person at a console asked for one (rules 4.3). */
  createMember(tx: Tx, group: GroupDoc, name: string): NodeDoc {
    const node = followGroup(tx, { name, group: group.name }, undefined, group, this.cluster)
    tx.put('node', name, node)
    return node
  }

  #write(tx: Tx, type: TypeName, name: string, before: object | undefined, given: Given, power: Power): void {
    const base = (before ?? { name }) as Record<string, unknown>
    const fields = this.#merge(tx, type, base, given, before !== undefined)
    if (type === 'group') {
      const group = mergeGroupInterfaces(fields as GroupDoc, given.interfaces)
      this.#putGroup(tx, before as GroupDoc | undefined, group)
    } else if (type === 'node')
      tx.put('node', name, this.#node(tx, before as NodeDoc | undefined, fields, given, power))
    else tx.put(type, name, fields as never)
  }

  /** The stored fields after a request: those equal to what is in force are left as they are (rules 3.4). */
  #merge(tx: Tx, type: TypeName, base: Record<string, unknown>, given: Given, exists: boolean): object {
    const settings = this.#inherited(tx, type, base, given, exists)
    const fields = { ...base }
    for (const field of objectTypes[type].fields as readonly Field[]) {
      if (field.derived || !given.values.has(field.name)) continue
      const value = given.values.get(field.name)
      const unset = value === null || value === undefined
      const wanted = unset ? (field.default === '' ? '' : null) : value
      const isInForce = field.inherited && JSON.stringify(wanted) === JSON.stringify(settings[field.name])
      if (isInForce && !given.override) continue
      // A default says nothing new: left out, so that an object's file depends on its values alone.
      const isDefault = !field.inherited && JSON.stringify(value) === JSON.stringify(field.default)
      if (unset || isDefault) delete fields[field.name]
      else fields[field.name] = value
    }
    return fields
  }

  #inherited(
    tx: Tx,
    type: TypeName,
    base: object,
    given: Given,
    exists: boolean
  ): Readonly<Record<string, unknown>> {
    if (type === 'group') return groupInForce(base as GroupDoc, this.cluster).settings
    if (type !== 'node') return {}
    const name = exists ? (base as NodeDoc).group : (given.values.get('group') as string | null | undefined)
    const group = name == null ? undefined : tx.get('group', name)
    return settingsOf(base as NodeDoc, group, this.cluster)
  }

  #putGroup(tx: Tx, before: GroupDoc | undefined, after: GroupDoc): void {
    tx.put('group', after.name, after)
    // Most changes of a group are none of its interfaces: its members are left alone then.
    if (!before || isDeepStrictEqual(before.interfaces, after.interfaces)) return
    for (const entry of after.interfaces ?? [])
      if (entry.network !== undefined && !tx.get('network', entry.network))
        throw badRequest(
          `group ${after.name}: interface ${entry.interface}: network ${entry.network} does not exist`
        )
    for (const name of [...(tx.index.members(after.name)?.all.values ?? [])]) {
      const node = tx.get('node', name)
      if (node) tx.put('node', name, followGroup(tx, node, before, after, this.cluster))
    }
  }

  #node(tx: Tx, before: NodeDoc | undefined, fields: object, given: Given, power: Power): NodeDoc {
    let node = fields as NodeDoc
    const group = (name: string | undefined) => {
      if (name === undefined) return undefined
      const found = tx.get('group', name)
      if (!found) throw badRequest(`node ${node.name}: group ${name} does not exist`)
      return found
    }
    // Entries that come with the request are merged first, so that their addresses need not be assigned.
    if (before?.group !== node.group) {
      const [from, to] = [group(before?.group), group(node.group)]
      const names = given.interfaces.map(entry => entry.interface)
      const early = given.interfaces.filter(entry =>
        to?.interfaces?.some(g => g.interface === entry.interface)
      )
      if (!before && early.length > 0) node = mergeNodeInterfaces(tx, node, early, this.cluster, power)
      node = followGroup(tx, node, from, to, this.cluster)
      // Read back whole with another group: entries as they were read are not a wish to keep what the move drops.
      const stale = (before?.interfaces ?? [])
        .filter(entry => names.includes(entry.interface))
        .map(entry => interfaceInForce(entry, from))
      const wishes = given.interfaces.filter(entry => !given.readBack || !isAsRead(entry, stale))
      node = mergeNodeInterfaces(tx, node, wishes, this.cluster, power)
    } else node = mergeNodeInterfaces(tx, node, given.interfaces, this.cluster, power)
    if (!given.values.has('macaddr')) return node
    const mac = given.values.get('macaddr') as string | null
    const { settings, provision } = this.effective(node, tx)
    // As it was read it is no wish, whichever interface the node is provisioned over now.
    const wasRead = before && given.readBack ? this.effective(before, tx).provision : provision
    if (mac === (provision?.macaddress ?? null) || mac === (wasRead?.macaddress ?? null)) return node
    return withMac(node, settings.provision_interface, mac)
  }

  #rename(tx: Tx, type: TypeName, from: string, to: string): void {
    const { title } = objectTypes[type]
    if (tx.get(type, to)) throw badRequest(`${title} ${to} exists already`)
    tx.put(type, to, { ...this.get(type, from, tx), name: to } as never)
    for (const user of tx.index.users({ type, name: from })) {
      const doc = tx.get(user.type, user.name)
      if (doc)
        tx.put(
          user.type,
          user.name,
          renameReference(objectTypes[user.type].fields, doc, { type, name: from }, to) as never
        )
    }
    tx.remove(type, from)
    if (type === 'osimage') renameImageTags(tx, from, to)
    if (type === 'osimage') renameTrees(tx, from, to)
    if (type === 'node' || type === 'group') moveSecrets(tx, type, from, to)
    if (type === 'node') this.revoke(tx, from, to)
  }

  /** Voids the tokens a node name was given so far: they do not pass to a later node of that name. */
  revoke(tx: Tx, name: string, renamed?: string): void {
    tx.put('revoked', name, { name, at: this.#o.now(), ...(renamed === undefined ? {} : { renamed }) })
  }
}

/** Which code a rename or clone without a new name has (rules 2.4). */
function nameless(type: TypeName, name: string, what: string): Error {
  const message = `${objectTypes[type].title} ${name}: field "${objectTypes[type].newName[0]}" ${what}`
  return type === 'osimage' ? notFound(message) : badRequest(message)
}

/** A node that was read and is posted to be cloned: what it says of the machine is no wish for the clone. */
function withoutMachine(given: Given, source: NodeDoc): Given {
  const fields = source as Readonly<Record<string, unknown>>
  const macs = source.interfaces?.map(entry => entry.macaddress) ?? []
  const values = new Map(given.values)
  for (const field of machineFields) if (values.get(field) === fields[field]) values.delete(field)
  if (macs.includes(values.get('macaddr') as string)) values.delete('macaddr')
  const interfaces = given.interfaces.map(entry => {
    const has = source.interfaces?.find(other => other.interface === entry.interface)
    const { ipaddress, macaddress, ...rest } = entry
    return {
      ...rest,
      ...(ipaddress === undefined || ipaddress === has?.ipaddress ? {} : { ipaddress }),
      ...(macaddress === undefined || macaddress === has?.macaddress ? {} : { macaddress })
    }
  })
  return { ...given, values, interfaces }
}

function isAsRead(given: Given['interfaces'][number], entries: NonNullable<NodeDoc['interfaces']>): boolean {
  const entry = entries.find(other => other.interface === given.interface)
  if (!entry) return false
  return (['network', 'ipaddress', 'macaddress', 'options'] as const).every(
    key => given[key] === undefined || (given[key] ?? '') === (entry[key] ?? '')
  )
}
