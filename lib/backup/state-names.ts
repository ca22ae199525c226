import { join } from 'node:path'
import { exists, isLeftover } from '../disk/file.js'
import { baseOf, isLocal, isUnsaved, recordKinds, TABLES } from '../store/record-kinds.js'

/** Directories of objects, of the log that changes them, and of the intents of releases before the log. */
const ofObjects = [
  ...['network', 'osimage', 'bmcsetup', 'file', 'group', 'node', 'switch', 'otherdev', 'osimagetag', 'pack'],
  ...['disklayout', 'tree', 'cluster', 'secrets', 'revoked', 'handover', 'firmware', 'log', 'intents']
]
/** Records: directories, and files of tables. */
const ofRecords = Object.keys(recordKinds).filter(kind => baseOf(kind) === 'files')
const journals = TABLES.map(kind => `${kind}.journal`)
/** All directories that belong in a backup. */
const directories = [...ofObjects, 'layout', 'ssh', ...ofRecords.filter(kind => !isUnsaved(kind))]
/** Directories bound to this machine and time: earlier states, consoles, and such records. */
const localDirectories = ['initramfs', 'backups', 'consoles', 'rehearsal', ...ofRecords.filter(isUnsaved)]
const files =
  /^(audit(-machines)?\.log(\.\d+)?|(secret|token|secureboot)\.key|secureboot\.crt|admin-password)$/
const localFiles = /^((copies|holder|logins)\.json|lock|objects-in-etcd)$/

/** Whether this is a directory of the state. */
export const isDirectoryOfState = (name: string): boolean =>
  directories.includes(name) || localDirectories.includes(name)

/**
 * Whether svcd creates an entry of this name in its state directory; it ignores other entries. `seeding.json`
 * belongs to the seeder, which keeps its torrents when another state is restored.
 */
export const isOwnEntry = (name: string): boolean =>
  isDirectoryOfState(name) ||
  [files, localFiles].some(pattern => pattern.test(name)) ||
  journals.includes(name.replace(/\.new$/, '')) ||
  isLeftover(name)

/** Whether an entry of the state directory belongs in a backup (rules 11.12). */
export const isBackedUp = (name: string): boolean =>
  directories.includes(name) || journals.includes(name) || files.test(name)

/** Whether a directory of this name belongs to the store's medium: objects, the log, the layout. */
export const isStored = (name: string): boolean => ofObjects.includes(name) || name === 'layout'

/** Whether this is the directory of records that controllers share. */
export const isSharedDirectory = (name: string): boolean => ofRecords.includes(name) && !isLocal(name)

/** Whether an entry of this name belongs to the medium, or holds its records: controllers share it. */
export const isShared = (name: string): boolean =>
  isStored(name) || journals.includes(name) || isSharedDirectory(name)

/**
 * Directories of a restore in the state directory. `part`: being filled, the state is untouched. `ready`:
 * complete, the old state moves out. `clear`: the old state is out, the new one moves in. Each becomes the
 * next by one rename.
 */
export const restoreDirectories = {
  part: 'restore.part',
  ready: 'restore.ready',
  clear: 'restore.clear'
} as const

/** Throws Error with the way out after an interrupted restore, as neither state is whole (rules 11.13). */
export async function refuseHalfRestored(state: string): Promise<void> {
  for (const name of Object.values(restoreDirectories))
    if (await exists(join(state, name)))
      throw new Error(
        `${join(state, name)}: a restore of this state was interrupted: type the same svcd restore again`
      )
}
