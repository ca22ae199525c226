import { isDeepStrictEqual } from 'node:util'
import { badRequest } from '../../base/errors.js'
import { effectiveGroup, effectiveKernelOptions, settingsOf } from '../effective.js'
import { comment, type Stored, type Table } from '../field.js'
import {
  applyGroupInterfaces,
  assignAddresses,
  mergeGroupInterfaces,
  type Renames,
  removeGroupInterface,
  renaming,
  withRenamed
} from '../networks.js'
import { type ChangeContext, named, type ObjectType } from '../object-type.js'
import { ownsSecrets } from '../secrets.js'
import { checkTag } from '../tags.js'
import { checkTrust } from '../trust.js'
import { checkVariables } from '../variables.js'
import { checkAttached } from './file.js'
import { bmcFields, installFields, laterFields, provisionFields, unmanagedBmcUsers } from './inheritable.js'
import { groupInterfaceFields, groupInterfaces } from './interface.js'

const fields = [
  ...bmcFields,
  ...installFields,
  comment,
  ...provisionFields,
  unmanagedBmcUsers,
  ...laterFields
] as const satisfies Table

const hidden = [groupInterfaces] as const satisfies Table

export type GroupDoc = { readonly name: string } & Stored<typeof fields> & Stored<typeof hidden>

declare module '../docs.js' {
  interface ObjectShapes {
    group: GroupDoc
  }
}

/** A group of nodes, which inherit its settings and interfaces. */
export const group: ObjectType<GroupDoc> = {
  type: 'group',
  title: 'group',
  fields,
  newName: ['newgroupname'],
  internalFields: hidden,
  interfaces: groupInterfaceFields,
  ...named,
  ...ownsSecrets('group'),

  effectiveValues(doc, _group, cluster) {
    const { settings, sources, variables } = effectiveGroup(doc, cluster)
    return { settings, sources, derived: { variables } }
  },
  kernelOptions: (doc, _group, image) => effectiveKernelOptions(image, doc),
  *write(changing, before, after, given) {
    const [interfaces, renames] = renaming(given.interfaces)
    const over = effectiveGroup(after, changing.cluster).settings.provision_interface
    const renamed = withRenamed(after, `group ${after.name}`, renames, over)
    yield* put(changing, before, mergeGroupInterfaces(renamed, interfaces), renames)
  },
  *removeInterface(changing, before, name) {
    yield* put(changing, before, removeGroupInterface(before, name))
  },

  *checks(view, doc, title, cluster) {
    yield () => checkVariables(doc.variables, title)
    yield () => checkAttached(view, doc.files, title)
    yield () => checkTag(view, effectiveGroup(doc, cluster).settings, title)
    yield () => checkTrust(effectiveGroup(doc, cluster).settings, title)
  },
  /** Checks image and tag, trust and method for the members that inherit one of them (rules 1.2, 15.1). */
  *checkChange(tx, before, after, cluster) {
    const isSame = (...names: readonly (keyof GroupDoc)[]) =>
      names.every(name => before[name] === after[name])
    if (isSame('osimage', 'osimagetag', 'trust', 'provision_method')) return
    for (const name of tx.index.members(after.name)?.all.values ?? []) {
      yield
      const node = tx.get('node', name)
      if (!node) continue
      const [settings, title] = [settingsOf(node, after, cluster), `group ${after.name}: node ${name}`]
      checkTag(tx, settings, title)
      checkTrust(settings, title)
    }
  }
}

/** Stores a group; its members follow a change of its interfaces (rules 3.5). */
function* put(
  { tx, cluster }: ChangeContext,
  before: GroupDoc | undefined,
  after: GroupDoc,
  renames: Renames = new Map()
): Generator<void> {
  tx.put('group', after.name, after)
  // Most changes leave the interfaces alone, and then the members too.
  if (!before || isDeepStrictEqual(before.interfaces, after.interfaces)) return
  for (const { interface: name, network } of after.interfaces ?? [])
    if (network !== undefined && !tx.get('network', network))
      throw badRequest(
        `group ${after.name}: interface ${name}: network ${network} does not exist`,
        'unknown-reference'
      )
  const was = withRenamed(before, '', renames)
  for (const name of [...(tx.index.members(after.name)?.all.values ?? [])]) {
    yield
    const node = tx.get('node', name)
    if (!node) continue
    // A node without the deleted interface must not get it back under its new name.
    const { removed = [] } = node
    const renamed = withRenamed(
      { ...node, removed: removed.map(one => renames.get(one) ?? one) },
      `node ${name}`,
      new Map([...renames].filter(([from]) => !removed.includes(from)))
    )
    tx.put('node', name, assignAddresses(tx, applyGroupInterfaces(renamed, was, after), cluster))
  }
}
