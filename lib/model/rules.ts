import { didYouMean } from '../base/did-you-mean.js'
import { badRequest, refusalsOf, ServiceError } from '../base/errors.js'
import { toAddress } from './address.js'
import {
  type Connection,
  type ObjectReference,
  type Owner,
  ownerText,
  type Ref,
  referencesOf
} from './cluster-index.js'
import type { AttachedShapes, Docs, TypeName } from './docs.js'
import { checkLinuxLimits } from './linux-limits.js'
import { macProblem } from './names.js'
import { checkDeviceAddress, controllerAddresses } from './networks.js'
import type { ObjectType } from './object-type.js'
import { shippedLayouts } from './shipped-layouts.js'
import type { AttachedType, Change, ClusterSettings, Tx, View } from './stored.js'
import { checkUnused } from './tags.js'
import { treeProblems } from './types/osimage.js'
import { attachedTypes, objectTypes, typeNames } from './types.js'

/** Indexed by any name, because the store reports changes of any type. */
const objects: Readonly<Record<string, ObjectType | undefined>> = objectTypes
const attached: Readonly<Record<string, AttachedType | undefined>> = attachedTypes

/**
 * Checks the changes of a transaction against all rules between objects (rules 2.4, 3.6, 3.9, 3.13), one per
 * step. It runs inside the transaction, so concurrent changes cannot break a rule together. Throws 400 naming
 * the object, or reports the errors to `refused`.
 */
export function* checkChangesSliced(
  tx: Tx,
  cluster: ClusterSettings,
  refused?: (change: Change, error: ServiceError) => void
): Generator<void> {
  const changes = [...tx.changes()]
  const renamed = renamedOf(changes)
  for (const change of changes) {
    yield
    try {
      yield* checkChangeSliced(tx, change, change.before ?? renamed.get(change.type), cluster)
    } catch (error) {
      if (!refused || !(error instanceof ServiceError)) throw error
      refused(change, error)
    }
  }
  for (const { message } of treeProblems(tx, cluster.imageDirectory))
    throw badRequest(message, 'already-exists')
}

/** Returns the former value of each type's only renamed object: it may break a newer rule. */
function renamedOf(changes: readonly Change[]): Map<string, object> {
  const gone = new Map<string, object>()
  const count = new Map<string, number>()
  for (const { type, before, after } of changes) {
    if (before && after) continue
    count.set(type, (count.get(type) ?? 0) + 1)
    if (before) gone.set(type, before)
  }
  return new Map([...gone].filter(([type]) => count.get(type) === 2))
}

function* checkChangeSliced(
  tx: Tx,
  { type, name, before, after }: Change,
  was: object | undefined,
  cluster: ClusterSettings
): Generator<void> {
  if (before && !after) attached[type]?.checkRemoved?.(tx, before, cluster)
  const object = objects[type]
  if (!object) return
  const ref = { type: object.type, name }
  if (after) for (const check of checksOf(tx, ref, cluster)) check()
  else checkRemoved(tx, ref)
  if (before && after && object.checkChange) yield* object.checkChange(tx, before, after, cluster)
  for (const { owner, macaddress } of tx.index.connectionsOf(ref, after)) {
    const why = macaddress && macProblem(macaddress)
    if (why && !tx.index.connectionsOf(ref, was).some(one => one.macaddress === macaddress))
      throw badRequest(
        `${ownerText(owner)}: MAC ${macaddress} ${why}: give the one of the card, or none`,
        'invalid-mac'
      )
  }
  yield* checkLinuxLimits(tx, { type, name, before: was, after }, cluster)
}

interface Problem {
  readonly type: keyof Docs
  readonly name: string
  readonly message: string
}

/** Checks every object in steps, after an import or an edit by hand; returns at most `limit` problems. */
export function* checkStateSliced(
  view: View,
  cluster: ClusterSettings,
  limit = Number.POSITIVE_INFINITY
): Generator<void, Problem[]> {
  const problems: Problem[] = []
  for (const type of typeNames)
    for (const name of view.names(type)) {
      yield
      for (const check of checksOf(view, { type, name }, cluster)) {
        const message = refusalMessage(check)
        if (message !== undefined) problems.push({ type, name, message })
        if (problems.length >= limit) return problems
      }
    }
  for (const type of Object.keys(attachedTypes) as (keyof AttachedShapes)[])
    for (const problem of attachedProblems(view, type)) {
      problems.push(problem)
      if (problems.length >= limit) return problems
    }
  return problems
}

/** Returns why `run` is refused; undefined if it is not. */
export function refusalMessage(run: () => void): string | undefined {
  try {
    run()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error.message
    throw error
  }
}

function* attachedProblems<K extends keyof AttachedShapes>(view: View, type: K): Generator<Problem> {
  const { checks } = attachedTypes[type]
  for (const name of checks ? view.names(type) : []) {
    const doc = view.get(type, name)
    for (const message of (doc && checks?.(view, doc)) ?? []) yield { type, name, message }
  }
}

/** Yields the checks of one object; each throws 400. */
function* checksOf<K extends TypeName>(
  view: View,
  ref: Ref & { type: K },
  cluster: ClusterSettings
): Generator<() => void> {
  const doc = view.get(ref.type, ref.name)
  if (!doc) return
  const type = objectTypes[ref.type]
  const title = `${type.title} ${ref.name}`
  for (const target of referencesOf(type.fields, doc)) yield () => checkReference(view, target, title)
  yield* type.checks?.(view, doc, title, cluster) ?? []
  for (const { owner, ...entry } of view.index.connectionsOf(ref, doc))
    yield () => checkConnection(view, owner, entry, title, cluster)
}

function checkReference(view: View, { type, name, soft }: ObjectReference, title: string): void {
  if (soft || view.get(type, name)) return
  const isShipped = type === 'disklayout' && Object.hasOwn(shippedLayouts, name)
  const way = isShipped
    ? `: svcctl disklayout add ${name} --shipped makes it`
    : didYouMean(name, view.names(type))
  throw badRequest(`${title}: ${objectTypes[type].title} ${name} does not exist${way}`, 'unknown-reference')
}

function checkConnection(
  view: View,
  { type, name, interface: on }: Owner,
  { network, ipaddress, macaddress }: Connection,
  title: string,
  cluster: ClusterSettings
): void {
  const where = on === undefined ? title : `${title}: interface ${on}`
  const no = refusalsOf(where)
  const other = (owners: readonly Owner[]) =>
    owners.find(owner => owner.type !== type || owner.name !== name || owner.interface !== on)
  const macOwner = macaddress === undefined ? undefined : other(view.index.macOwners(macaddress))
  if (macOwner) throw no(`MAC ${macaddress} belongs to ${ownerText(macOwner)}`, 'mac-taken')
  if (ipaddress === undefined) return
  if (network === undefined) throw no('an address needs a network', 'network-needed')
  // A missing network is reported by another check.
  if (!view.get('network', network)) return
  checkDeviceAddress(view, network, ipaddress, where)
  if (view.index.lookup(`record/${name.toLowerCase()}`).includes(network))
    throw no(
      `${name} is a DNS record of network ${network}: delete that, or choose another name`,
      'already-exists'
    )
  const address = toAddress(ipaddress)
  const owner = other(view.index.addressOwners(address))
  if (owner) throw no(`${ipaddress} belongs to ${ownerText(owner)}`, 'address-taken')
  const controller = controllerAddresses(cluster).get(address)
  if (controller !== undefined) throw no(`${ipaddress} belongs to controller ${controller}`, 'address-taken')
}

function checkRemoved(tx: Tx, ref: Ref): void {
  const users = tx.index.referrers(ref).map(({ type, name }) => `${objectTypes[type].title} ${name}`)
  checkUnused(`${objectTypes[ref.type].title} ${ref.name}`, users)
}
