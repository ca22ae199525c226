import type { Change } from '../store/types.js'
import { ClusterIndex } from './cluster-index.js'
import type { AttachedShapes, Docs, TypeName } from './docs.js'
import type { ObjectType } from './object-type.js'
import type { SecretBox } from './secret-box.js'
import { secrets } from './secrets.js'
import { cluster } from './settings.js'
import { type AttachedType, kindOf, type StoredKind, type StoredType } from './stored.js'
import { bmcsetup } from './types/bmcsetup.js'
import { disklayout } from './types/disklayout.js'
import { file } from './types/file.js'
import { firmware } from './types/firmware.js'
import { group } from './types/group.js'
import { handover } from './types/handover.js'
import { network } from './types/network.js'
import { node, revoked } from './types/node.js'
import { osimage, osimagetag, pack, tree } from './types/osimage.js'
import { otherdev } from './types/otherdev.js'
import { switches } from './types/switch.js'

export const objectTypes: { readonly [K in TypeName]: ObjectType<Docs[K]> } = {
  network,
  osimage,
  bmcsetup,
  file,
  disklayout,
  group,
  node,
  switch: switches,
  otherdev
}

/** In the order of an export. */
export const typeNames = Object.keys(objectTypes) as TypeName[]

/** Data that belongs to objects but is no object. */
export const attachedTypes: { readonly [K in keyof AttachedShapes]: AttachedType<Docs[K]> } = {
  osimagetag,
  pack,
  tree,
  cluster,
  secrets,
  revoked,
  handover,
  firmware
}

type Kinds = { readonly [K in keyof Docs]: StoredKind<Docs[K]> }

const allTypes = { ...objectTypes, ...attachedTypes }

function kindsWith(box?: SecretBox): Kinds {
  const all = Object.entries<StoredType>(allTypes)
  return Object.fromEntries(
    all.map(([type, of]) => [type, kindOf(of, box && { box, type })])
  ) as unknown as Kinds
}

/** The export form: secret fields in the clear. */
export const kinds: Kinds = kindsWith()

/** The form on disk: secret fields sealed with `box` (rules 11.8). */
export const sealedKinds: (box: SecretBox) => Kinds = kindsWith

/** Returns an empty index of all stored data. */
export const createIndex = () => new ClusterIndex(allTypes)

const titles: Readonly<Record<string, { readonly title: string }>> = allTypes
const titleOf = (type: string) => titles[type]?.title ?? type

/** Returns an object's name for a sentence: `OS image debian`, `the secrets of group compute`. */
export function describeObject(type: string, name: string): string {
  if (type === 'cluster') return 'the settings of the cluster'
  if (type === 'secrets') return `the secrets of ${name.replace('.', ' ')}`
  return `${titleOf(type)} ${name}`
}

/** Returns what a change does to its object. */
export const actionOf = ({ before, after }: Pick<Change, 'before' | 'after'>) =>
  !before ? 'create' : after ? 'update' : 'delete'

/** Participles for the `action` of a dry run. */
export const participles: Readonly<Record<string, string>> & {
  readonly create: 'created'
  readonly update: 'changed'
  readonly delete: 'deleted'
} = { create: 'created', update: 'changed', delete: 'deleted' }

/** Returns a number of objects for a sentence: `1 node`, `2 switches`. */
export function countObjects(type: string, count: number): string {
  if (type === 'cluster') return 'the settings of the cluster'
  if (type === 'secrets') return `the secrets of ${count} object${count === 1 ? '' : 's'}`
  return `${count} ${count === 1 ? titleOf(type) : plural(titleOf(type))}`
}

/** Returns the plural of a title: `nodes`, `switches`. */
export const plural = (title: string) => `${title}${title.endsWith('ch') ? 'es' : 's'}`
