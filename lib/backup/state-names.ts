import { join } from 'node:path'
import { exists, isLeftover } from '../disk/file.js'

/** Directories of objects, and of the intents that change them. */
const ofObjects = [
  ...['network', 'osimage', 'bmcsetup', 'file', 'group', 'node', 'switch', 'otherdev', 'osimagetag', 'pack'],
  ...['tree', 'cluster', 'secrets', 'revoked', 'handover', 'intents']
]
/** All that belong into a backup. */
const directories = [...ofObjects, 'layout', 'jobs', 'services', 'ssh']
/** Directories that mean something on the machine and at the time alone: notes of work on images, and earlier states. */
const local = ['work', 'initramfs', 'backups']
const files =
  /^(node-(boots|status)\.journal|audit(-machines)?\.log(\.\d+)?|(secret|token)\.key|admin-password)$/
const localFiles = /^((copies|holder|logins)\.json|lock|objects-in-etcd|node-(boots|status)\.journal\.new)$/

/** Whether this is a directory of the state's. */
export const isDirectoryOfState = (name: string): boolean =>
  directories.includes(name) || local.includes(name)

/** Whether svcd makes an entry of this name in its state directory. What else lies there is no business of its. */
export const isMade = (name: string): boolean =>
  isDirectoryOfState(name) || files.test(name) || localFiles.test(name) || isLeftover(name)

/** Whether an entry of the state directory belongs into a backup (rules 11.12). */
export const isKept = (name: string): boolean => directories.includes(name) || files.test(name)

/** Whether a directory of this name holds what the medium of the store holds: objects, intents, the layout. */
export const isStored = (name: string): boolean => isOfObjects(name) || name === 'layout'

/**
 * Whether an entry of this name holds what controllers share: what the medium of the store holds, what nodes report, and the records
 * of requests.
 */
export const isShared = (name: string): boolean =>
  isStored(name) || name === 'jobs' || /^node-(boots|status)\.journal$/.test(name)

/** Whether objects, or intents, are in a directory of this name. */
export const isOfObjects = (name: string): boolean => ofObjects.includes(name)

/**
 * Directories of a restore in the state directory. `part`: being filled, the state is untouched. `ready`: whole, and the
 * old state moves out. `clear`: the old one is out, and the new one moves in. Each becomes the next by one rename.
 */
export const steps = { part: 'restore.part', ready: 'restore.ready', clear: 'restore.clear' } as const

/** Throws Error with the way out where a restore has not come to its end: the state is whole neither way (rules 11.13). */
export async function refuseHalfRestored(state: string): Promise<void> {
  for (const name of Object.values(steps))
    if (await exists(join(state, name)))
      throw new Error(
        `${join(state, name)}: a restore of this state was interrupted: type the same svcd restore again`
      )
}
