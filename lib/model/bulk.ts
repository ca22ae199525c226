import { runSync } from '../base/concurrency.js'
import { badRequest } from '../base/errors.js'
import { checkDigest } from './differences.js'
import type { TypeName } from './docs.js'
import { type Actor, type Model, removeObjects, saveObject } from './model.js'
import type { ChangeContext, ObjectPatch } from './object-type.js'
import { checkChangesSliced, refusalMessage } from './rules.js'
import type { View } from './stored.js'
import { objectTypes } from './types.js'

/** Finds the names of the objects to change, in short steps. */
type Selector = (view: View) => Generator<unknown, readonly string[]>

/** Changes the objects that `pick` names in one transaction, and returns their number. Throws 404. */
export function saveAll(
  model: Model,
  type: TypeName,
  pick: Selector,
  given: ObjectPatch,
  actor: Actor
): Promise<number> {
  const picked = function* (view: View) {
    const names = yield* pick(view)
    if (names.length > 1) refuseShared(type, names.length, given)
    return names
  }
  return changeAll(model, actor, picked, function* (changing, name) {
    yield* saveObject(changing, type, name, model.get(type, name, changing.tx), given)
  })
}

/** Throws 400 for a MAC or address for several objects, before the second conflicts with the first. */
function refuseShared(type: TypeName, count: number, { values, interfaces }: ObjectPatch): void {
  const { title } = objectTypes[type]
  const refuse = (where: string, what: string, value: unknown) => {
    if (typeof value === 'string')
      throw badRequest(
        `${title} set: ${where}: ${count} ${title}s cannot have one ${what}, ${value}; ` +
          'give each its own, alone or by a table (svcctl import FILE)',
        'invalid-set'
      )
  }
  refuse('field "macaddr"', 'MAC', values.get('macaddr'))
  for (const { interface: on, macaddress, ipaddress } of interfaces) {
    refuse(`interface ${on}`, 'MAC', macaddress)
    refuse(`interface ${on}`, 'address', ipaddress)
  }
}

/** Removes the objects that `pick` names, or none if one is in use; returns their number. */
export function removeAll(model: Model, type: TypeName, pick: Selector, actor: Actor): Promise<number> {
  return changeAll(model, actor, pick, function* (changing, name) {
    model.get(type, name, changing.tx)
    yield removeObjects(changing, type, [name])
  })
}

function changeAll(
  model: Model,
  actor: Actor,
  pick: Selector,
  change: (changing: ChangeContext, name: string) => Generator<void>
): Promise<number> {
  return model.changeInSteps(actor, 'set', function* (changing) {
    const names = [...(yield* pick(changing.tx))]
    for (const name of names) yield* change(changing, name)
    yield* checkChangesSliced(changing.tx, changing.cluster)
    yield* checkDigest(changing.tx.changes(), actor.expected, 'change')
    return names.length
  })
}

/**
 * Creates and changes objects, one per entry, in one transaction. `refused` receives each entry that breaks a
 * rule, then `refuse` throws. Throws 400 if the outcome differs from the dry run whose digest is `expected`.
 */
export function saveEach<E extends { readonly name: string; readonly given: ObjectPatch }>(
  model: Model,
  type: TypeName,
  entries: readonly E[],
  actor: Actor,
  refused: (entry: E, why: string) => void,
  refuse: () => void,
  expected?: string
): Promise<{ created: number; changed: number }> {
  return model.changeInSteps(actor, 'table', function* (changing) {
    const { tx, cluster } = changing
    const byName = new Map(entries.map(entry => [entry.name, entry]))
    for (const entry of entries) {
      yield
      const why = refusalMessage(() =>
        runSync(saveObject(changing, type, entry.name, tx.get(type, entry.name), entry.given))
      )
      if (why !== undefined) refused(entry, why)
    }
    yield* checkChangesSliced(tx, cluster, (changed, error) => {
      const entry = changed.type === type ? byName.get(changed.name) : undefined
      if (!entry) throw error
      refused(entry, error.message)
    })
    refuse()
    const changes = tx.changes()
    yield* checkDigest(changes, expected, 'import')
    const ours = changes.filter(change => change.type === type)
    const created = ours.filter(({ before }) => !before).length
    return { created, changed: ours.length - created }
  })
}
