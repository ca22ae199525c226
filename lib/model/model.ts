import { cachedPerObject, runSync, TooManySteps } from '../base/concurrency.js'
import { badRequest, notFound } from '../base/errors.js'
import type { Change } from '../store/types.js'
import { isBmc, type Owner, type Ref, renameReference } from './cluster-index.js'
import { checkDigest } from './differences.js'
import type { Docs, TypeName } from './docs.js'
import { type EffectiveNode, effectiveNode } from './effective.js'
import { migrations } from './migrations.js'
import { applyGroupInterfaces, assignAddresses, withMac } from './networks.js'
import type { CallerRights, ChangeContext, InterfacePatch, ObjectPatch } from './object-type.js'
import { applyPatch, omitFields } from './request.js'
import { checkChangesSliced, checkStateSliced } from './rules.js'
import type { SecretBox } from './secret-box.js'
import { effectiveSettings } from './settings.js'
import type { ClusterSettings, ClusterStore, NamedController, Tx, View } from './stored.js'
import { limitViolations } from './table.js'
import type { GroupDoc } from './types/group.js'
import { generationOf, type NodeDoc } from './types/node.js'
import { createIndex, objectTypes, sealedKinds } from './types.js'

/** Identifies the caller of a change, for the audit log and for permissions. */
export interface Actor extends CallerRights {
  /** "user admin", "node node001", "console". */
  readonly who: string
  /** Source address. */
  readonly from: string
  /** Set for a dry run: makes the error that is thrown at the end, so that the transaction is rolled back. */
  readonly dryRun?: (changes: readonly Change[], view: View, cluster: ClusterSettings) => Error
  /** Digest of a dry run: a change with another outcome is refused with 400. */
  readonly expected?: string
  /** Throws 412 unless what is stored is what the caller read. It runs first in the transaction. */
  readonly precondition?: (view: View) => Generator<unknown>
}

/** The actor of changes that svcd makes on its own. */
export const daemonActor: Actor = { who: 'svcd', from: '-', mayTakeAddresses: false }

/** How a change was requested: one object, one change of a set, a table of entries, an import. */
export type ChangeKind = 'change' | 'set' | 'table' | 'import'

const noControllers: readonly NamedController[] = []

/** A change with at most this many steps (about one for each object read or written) runs in one turn. */
const STEPS_AT_ONCE = 64

export interface ModelOptions {
  readonly store: Pick<ClusterStore, 'change' | 'changeInSteps' | 'current'> &
    Partial<Pick<ClusterStore, 'role' | 'readBarrier'>>
  /** The settings of the ini. */
  readonly ini: ClusterSettings
  /** The controllers that share the objects; the same array until the list changes. Default: none. */
  readonly controllers?: () => readonly NamedController[] | undefined
  readonly now: () => number
  readonly box: SecretBox
  /** Called after a change is durable; the change is answered after it resolves. */
  readonly audit: (actor: Actor, changes: readonly Change[], kind: ChangeKind) => Promise<void>
}

/** Tells how to read the state, seal it by `box` and verify it: files may be edited by hand (rules 11.2). */
export function storeOptions(directory: string, ini: ClusterSettings, box: SecretBox, release: string) {
  // The ini may give a controller the address of a device. Objects still load: `svcd check` warns of it.
  const settings = { ...ini, controller: { name: ini.controller.name, address: '' }, otherControllers: [] }
  const verify = (view: View) => checkStateSliced(view, settings)
  const layout = { steps: migrations(ini.imageDirectory), release, backups: `${directory}/backups` }
  return { directory, kinds: sealedKinds(box), createIndex, verify, layout }
}

/** The cluster's objects and all changes of them, each one transaction with its references and addresses. */
export class Model {
  /** By what was changed over http and by the controllers, which are replaced and never changed. */
  readonly #settings = cachedPerObject((_changed: object) =>
    cachedPerObject((controllers: readonly NamedController[]): ClusterSettings => {
      const otherControllers = controllers.filter(({ name }) => name !== this.ini.controller.name)
      return { ...effectiveSettings(this.view, this.ini), otherControllers }
    })
  )

  constructor(private readonly options: ModelOptions) {}

  get view(): View {
    return this.options.store.current
  }

  /** Whether changes are refused here, because another controller makes them. */
  get isReadOnly(): boolean {
    return this.options.store.role?.isLeader === false
  }

  /** Waits until this view has all that is stored (`Store.readBarrier`). Throws StoreError if that fails. */
  async readBarrier(): Promise<void> {
    await this.options.store.readBarrier?.()
  }

  /** Returns a model that reads the view of `current`, such as that of a transaction, and changes nothing. */
  reading(current: () => View): Model {
    const change = () => Promise.reject(new TypeError('this model only reads'))
    const store = {
      change,
      changeInSteps: change,
      get current() {
        return current()
      }
    }
    return new Model({ ...this.options, store })
  }

  /** The cluster's settings of the ini. */
  get ini(): ClusterSettings {
    return this.options.ini
  }

  get box(): SecretBox {
    return this.options.box
  }

  /** The cluster's settings in force: those of the ini with the changes made over http. */
  get cluster(): ClusterSettings {
    const controllers = this.options.controllers?.() ?? noControllers
    return this.#settings(this.view.get('cluster', 'cluster') ?? this.ini)(controllers)
  }

  /** Returns a node with all that it inherits from its group, network, image and the cluster. */
  effective(node: NodeDoc, view: View = this.view): EffectiveNode {
    return effectiveNode(view, node, this.cluster)
  }

  /**
   * Whether a token was issued to the present node of this name (rules 4.8). The generation decides, as
   * clocks may be set. Tokens of earlier versions have none: `issuedAt` (ms) decides, until a revocation.
   */
  isTokenCurrent(node: string, { generation, issuedAt }: { generation?: number; issuedAt: number }): boolean {
    if (!this.view.get('node', node)) return false
    const present = generationOf(this.view, node)
    if (generation !== undefined || present > 0) return generation === present
    return issuedAt > (this.view.get('revoked', node)?.at ?? -1)
  }

  /** Runs one change, which fails as a whole if it breaks a rule between objects. */
  change<R>(actor: Actor, fn: (tx: Tx) => R): Promise<R> {
    const checked = function* ({ tx, cluster }: ChangeContext) {
      const returned = fn(tx)
      yield* checkChangesSliced(tx, cluster)
      return returned
    }
    return this.#audited(actor, 'change', checked, steps =>
      this.options.store.change(tx => runSync(steps(tx)))
    )
  }

  /** Runs a change in steps and rolls it back: returns its result, or throws its error. */
  async preview<R>(fn: (changing: ChangeContext) => Generator<unknown, R>): Promise<R> {
    const takenBack = new Error('taken back')
    const found: R[] = []
    const changingOf = (tx: Tx) => this.#changing(tx, daemonActor)
    await this.options.store
      .changeInSteps(function* (tx) {
        found.push(yield* fn(changingOf(tx)))
        throw takenBack
      })
      .catch(error => {
        if (error !== takenBack) throw error
      })
    return found[0] as R
  }

  /** Runs a change that may be too long for one turn of the event loop; `fn` checks the rules itself. */
  changeInSteps<R>(
    actor: Actor,
    kind: ChangeKind,
    fn: (changing: ChangeContext) => Generator<unknown, R>
  ): Promise<R> {
    return this.#audited(actor, kind, fn, steps => this.options.store.changeInSteps(steps))
  }

  /** Runs a change in one turn, or again in steps if it takes too many: `fn` may run twice. */
  async #ofAnySize<R>(actor: Actor, fn: (changing: ChangeContext) => Generator<unknown, R>): Promise<R> {
    const checked = function* (changing: ChangeContext) {
      const returned = yield* fn(changing)
      yield* checkChangesSliced(changing.tx, changing.cluster)
      yield* checkDigest(changing.tx.changes(), actor.expected, 'change')
      return returned
    }
    try {
      return await this.#audited(actor, 'change', checked, steps =>
        this.options.store.change(tx => runSync(steps(tx), STEPS_AT_ONCE))
      )
    } catch (error) {
      if (error instanceof TooManySteps) return this.changeInSteps(actor, 'change', checked)
      throw error
    }
  }

  /** Runs the steps of a transaction, which throw at the end of a dry run; audits durable changes. */
  async #audited<R>(
    actor: Actor,
    kind: ChangeKind,
    fn: (changing: ChangeContext) => Generator<unknown, R>,
    run: (steps: (tx: Tx) => Generator<unknown, R>) => Promise<R>
  ): Promise<R> {
    const model = this
    let changes: readonly Change[] = []
    const result = await run(function* (tx) {
      yield* actor.precondition?.(tx) ?? []
      const returned = yield* fn(model.#changing(tx, actor))
      changes = tx.changes()
      if (actor.dryRun) throw actor.dryRun(changes, tx, effectiveSettings(tx, model.ini))
      return returned
    })
    if (changes.length > 0) await this.options.audit(actor, changes, kind)
    return result
  }

  /** Returns an object; throws 404 naming it. */
  get<K extends TypeName>(type: K, name: string, view: View = this.view): Docs[K] {
    const doc = view.get(type, name)
    if (!doc) throw notFound(`${objectTypes[type].title} ${name} does not exist`, 'no-object')
    return doc
  }

  /** Creates, updates or renames an object (rules 1.10). `also` joins the transaction; it may run twice. */
  save<K extends TypeName>(
    type: K,
    name: string,
    given: ObjectPatch,
    actor: Actor,
    also?: (tx: Tx) => void
  ): Promise<{ created: boolean }> {
    const model = this
    return this.#ofAnySize(actor, function* (changing) {
      const { tx } = changing
      const before = tx.get(type, name)
      if (!before && given.newName !== undefined) model.get(type, name, tx)
      if (given.newName === '') throw missingNewName(type, name, 'is empty')
      yield* saveObject(changing, type, name, before, given)
      if (given.newName !== undefined && given.newName !== name)
        yield* rename(changing, type, name, given.newName)
      also?.(tx)
      return { created: !before }
    })
  }

  /** Copies the fields that need not be unique, the request's over them (rules 3.2). `also` may run twice. */
  clone<K extends TypeName>(
    type: K,
    name: string,
    given: ObjectPatch,
    actor: Actor,
    also?: (tx: Tx) => void
  ): Promise<void> {
    const objectType = objectTypes[type]
    const model = this
    return this.#ofAnySize(actor, function* (changing) {
      const { tx } = changing
      const source = model.get(type, name, tx)
      if (!given.newName) throw missingNewName(type, name, 'is missing')
      const to = given.newName
      if (tx.get(type, to)) throw badRequest(`${objectType.title} ${to} exists already`, 'already-exists')
      const copy = { ...omitFields(source, objectType.unique ?? []), name: to }
      const wishes = objectType.clonePatch?.(given, source) ?? given
      yield* saveObject(changing, type, to, objectType.copy?.(changing, copy) ?? copy, wishes)
      objectType.copied?.(changing, name, to)
      also?.(tx)
    })
  }

  /** Removes an object; throws 400 if another object refers to it. */
  remove(type: TypeName, name: string, actor: Actor): Promise<void> {
    return this.change(actor, tx => {
      this.get(type, name, tx)
      removeObjects(this.#changing(tx, actor), type, [name])
    })
  }

  /** Adds or changes interfaces of an existing object; returns whether one of them is new (rules 1.9). */
  saveInterfaces(
    type: 'group' | 'node',
    name: string,
    interfaces: readonly InterfacePatch[],
    actor: Actor
  ): Promise<boolean> {
    const model = this
    return this.#ofAnySize(actor, function* (changing) {
      const before = model.get(type, name, changing.tx)
      const had = new Set(before.interfaces?.map(entry => entry.interface))
      const given = { values: new Map(), newName: undefined, interfaces, override: false, readBack: false }
      yield* saveObject(changing, type, name, before, given)
      return interfaces.some(entry => !had.has(entry.interface))
    })
  }

  /** Removes an interface of a node, or of a group and its members (rules 3.5). */
  removeInterface<K extends 'group' | 'node'>(
    type: K,
    name: string,
    wanted: string,
    actor: Actor
  ): Promise<void> {
    const model = this
    return this.#ofAnySize(actor, function* (changing) {
      yield* objectTypes[type].removeInterface?.(changing, model.get(type, name, changing.tx), wanted) ?? []
    })
  }

  /** Returns the owner of a MAC that a machine boots with; throws 400 for the MAC of a BMC. */
  ownerOfMac(tx: Tx, mac: string): Owner | undefined {
    const [owner] = tx.index.macOwners(mac)
    if (owner && isBmc(owner))
      throw badRequest(`MAC ${mac} belongs to the BMC of node ${owner.name}`, 'mac-taken')
    return owner
  }

  /** Moves a MAC to a node's provision interface; returns the former owner's name (rules 4.3, 4.4). */
  moveMac(tx: Tx, node: NodeDoc, mac: string): string | undefined {
    const owner = this.ownerOfMac(tx, mac)
    if (owner?.type === 'node' && owner.name === node.name) return undefined
    const former = owner?.type === 'node' ? tx.get('node', owner.name) : undefined
    if (former && owner?.interface !== undefined)
      tx.put('node', former.name, withMac(former, owner.interface, null))
    tx.put('node', node.name, withMac(node, this.effective(node, tx).settings.provision_interface, mac))
    return former?.name
  }

  /** Creates a member of a group for a person at a console (rules 4.3). */
  createMember(tx: Tx, group: GroupDoc, name: string): NodeDoc {
    const node = applyGroupInterfaces({ name, group: group.name }, undefined, group)
    const assigned = assignAddresses(tx, node, this.cluster)
    tx.put('node', name, assigned)
    return assigned
  }

  #changing(tx: Tx, power: CallerRights): ChangeContext {
    return { tx, cluster: this.cluster, now: this.options.now(), callerRights: power }
  }
}

/** Removes objects and everything attached to them. */
export function removeObjects(changing: ChangeContext, type: TypeName, names: readonly string[]): void {
  for (const name of names) changing.tx.remove(type, name)
  objectTypes[type].removed?.(changing, names)
}

/** Applies a request to an object and stores it with all consequences, one step each. */
export function* saveObject<K extends TypeName>(
  changing: ChangeContext,
  type: K,
  name: string,
  before: Docs[K] | undefined,
  given: ObjectPatch
): Generator<void> {
  const { tx, cluster } = changing
  const objectType = objectTypes[type]
  const { memberOf, effectiveValues } = objectType
  const groupName = memberOf && (before ? memberOf(before) : given.values.get('group'))
  const group = typeof groupName === 'string' ? tx.get('group', groupName) : undefined
  const { settings, derived } = effectiveValues?.(before, group, cluster) ?? {}
  const after = applyPatch(objectType, before ?? { name }, given, { ...settings, ...derived })
  for (const why of limitViolations(objectType.fields, before, after))
    throw badRequest(`${objectType.title} ${name}: ${why}`, 'invalid-field')
  if (objectType.write) yield* objectType.write(changing, before, after, given)
  else yield tx.put(type, name, after)
}

/** Renames an object, also in the objects that refer to it (rules 3.2), one step each. */
function* rename<K extends TypeName>(
  changing: ChangeContext,
  type: K,
  from: string,
  to: string
): Generator<void> {
  const { tx } = changing
  const doc = tx.get(type, from)
  if (!doc) return
  if (tx.get(type, to)) throw badRequest(`${objectTypes[type].title} ${to} exists already`, 'already-exists')
  tx.put(type, to, { ...doc, name: to })
  for (const user of tx.index.referrers({ type, name: from }))
    yield renameIn(tx, user.type, user.name, { type, name: from }, to)
  tx.remove(type, from)
  objectTypes[type].renamed?.(changing, from, to)
}

function renameIn<K extends TypeName>(tx: Tx, type: K, name: string, from: Ref, to: string): void {
  const doc = tx.get(type, name)
  if (doc) tx.put(type, name, renameReference(objectTypes[type].fields, doc, from, to))
}

/** Makes the error of a rename or clone without a new name (rules 2.4). */
function missingNewName(type: TypeName, name: string, what: string): Error {
  const { title, newName, missingNameStatus } = objectTypes[type]
  const message = `${title} ${name}: field "${newName[0]}" ${what}`
  return missingNameStatus === 404 ? notFound(message, 'no-new-name') : badRequest(message, 'missing-field')
}
