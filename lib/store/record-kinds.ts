/**
 * A kind of records. `table`: all of its texts are one file, `<kind>.journal`, which is written anew at a
 * checkpoint. `files`: each text is a file, `<kind>/<name>.json`, written behind the log.
 */
interface RecordKind {
  readonly base: 'table' | 'files'
}

/** The kinds of records, which nodes report and svcd observes. Only this table knows where they are. */
export const recordKinds = {
  'node-status': { base: 'table' },
  'node-boots': { base: 'table' },
  'node-inventory': { base: 'table' },
  jobs: { base: 'files' }
} as const satisfies Readonly<Record<string, RecordKind>>

/** Returns where the texts of a type are stored; undefined for a type of objects. */
export const baseOf = (type: string): RecordKind['base'] | undefined =>
  (recordKinds as Readonly<Record<string, RecordKind | undefined>>)[type]?.base

/** The kinds with a table. */
export const TABLES = Object.keys(recordKinds).filter(kind => baseOf(kind) === 'table')
