/** How the records of a kind are stored. */
interface RecordKind {
  /** `shared`: a fact of the cluster, in etcd where controllers share it. `local`: one of this machine. */
  readonly scope: 'shared' | 'local'
  /**
   * `table`: all of its texts are one file, `<kind>.journal`, which is written anew at a checkpoint. `files`:
   * each text is a file, `<kind>/<name>.json`, written behind the log.
   */
  readonly base: 'table' | 'files'
  /** The subject of messages; absent: its keeper reports failures. */
  readonly title?: string
  /** False: it means nothing on another machine, or at another time. */
  readonly isBackedUp: boolean
}

/** The kinds of records that the state directory may hold. Only this table knows where they are. */
export const recordKinds = {
  // Reports of nodes, and their boots as svcd sees them.
  'node-status': { scope: 'shared', base: 'table', isBackedUp: true, title: 'the states of nodes' },
  'node-boots': { scope: 'shared', base: 'table', isBackedUp: true, title: 'the boots of nodes' },
  // The hardware of nodes, as they report it.
  'node-inventory': { scope: 'shared', base: 'table', isBackedUp: true, title: 'the inventories of nodes' },
  // Verdicts on what the machines of nodes showed of themselves.
  'node-trust': { scope: 'shared', base: 'table', isBackedUp: true, title: 'the proofs of nodes' },
  // Tokens of programs, by their hashes.
  tokens: { scope: 'shared', base: 'files', title: 'the tokens of programs', isBackedUp: true },
  // Requests.
  jobs: { scope: 'shared', base: 'files', isBackedUp: true },
  // Work on images that a crash would leave unfinished: hidden files and directories of this machine.
  work: { scope: 'local', base: 'files', isBackedUp: false },
  // Swaps under the DHCP and DNS servers of this machine, and the serials in its zones.
  services: { scope: 'local', base: 'files', isBackedUp: true }
} as const satisfies Readonly<Record<string, RecordKind>>

const kindOf = (type: string) => (recordKinds as Readonly<Record<string, RecordKind | undefined>>)[type]

/** Returns where the texts of a type are stored; undefined for a type of objects. */
export const baseOf = (type: string): RecordKind['base'] | undefined => kindOf(type)?.base

/** Returns the subject of messages on a kind. */
export const titleOf = (kind: string): string | undefined => kindOf(kind)?.title

/** Whether a type is a kind of facts of one machine. */
export const isLocal = (type: string): boolean => kindOf(type)?.scope === 'local'

/** Whether a type is a kind that no backup has. */
export const isUnsaved = (type: string): boolean => kindOf(type)?.isBackedUp === false

/** The kinds with a table. */
export const TABLES = Object.keys(recordKinds).filter(kind => baseOf(kind) === 'table')
