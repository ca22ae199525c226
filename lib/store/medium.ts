import type { Problem } from '../base/errors.js'
import type { Role } from './role.js'

/** The text to store for one object; `undefined` removes it. */
export interface Write {
  readonly type: string
  readonly name: string
  readonly text: string | undefined
}

/** A write with the text before it, for a medium that has to undo it. */
export interface Revertible extends Write {
  readonly textBefore: string | undefined
}

/**
 * Stores the objects of a store as texts. One store calls, in this order: `lock`, `read`, `start`, then
 * `commit`, one at a time, and in any case `close`. Inspection calls `read` alone.
 */
export interface Medium {
  /** Becomes leader. Throws Error that names the current leader. */
  lock(): Promise<void>
  /** Reads the stored state. Writes nothing, and needs no leadership. */
  read(): Promise<StoredState>
  /**
   * Prepares for writes of these types, and finishes in the background what a crash interrupted. `read` found
   * the state whole. `listener` receives the commits of others if leadership can be lost.
   */
  start(types: Iterable<string>, listener?: ReplicationListener): Promise<void>
  /**
   * Resolves when all the writes (at most one per object) survive a power cut. After a throw none does, and
   * none ever will. Without writes, tests whether the next commit would succeed.
   */
  commit(writes: readonly Revertible[]): Promise<void>
  /** The reason why writing is, or soon will be, impossible; '' if all is well. */
  readonly problem: string
  readonly role: Role
  /** The location of an object, for messages; absent for an exclusive medium. */
  place?(type: string, name: string): string
  /** Ends background work, and gives up leadership. */
  close(): Promise<void>
}

/** A medium that several controllers share: one leads, the others follow. */
export interface SharedMedium extends Medium {
  /**
   * Replaces `lock` and `start` after `read`: reports the commits of the leader, and becomes leader when
   * there is none, once all earlier commits were reported. `isWhole`: the listener has what was read;
   * otherwise all is read again until it can be reported. Gives up leadership.
   */
  follow(listener: ReplicationListener, isWhole?: boolean): void
}

/** A controller, as registered by itself. */
export interface Controller {
  readonly name: string
  /** Host name of its machine. */
  readonly host: string
  readonly address: string
  readonly port: number
  /** The path of its ini. */
  readonly ini: string
  /** The URL at which others reach it, http or https; absent in releases that do not report it. */
  readonly url?: string
  /** Digests of settings that all must share, by name; absent in releases that do not report them. */
  readonly digests?: Readonly<Record<string, string>>
  /** Directories of deleted images, out of their places there (`outOfPlace` of tree-reconciler.ts). */
  readonly trees?: readonly string[]
  /** How far its clock is ahead of ours, in milliseconds; absent for itself, until known, and as above. */
  readonly aheadMs?: number
}

/** Listens to the commits of others. Calls never overlap. */
export interface ReplicationListener {
  /** One commit, at most one write per object. */
  applyRemote(writes: readonly Write[]): Promise<void>
  /** The whole state, when single commits are no longer known. */
  reload(stored: StoredState): Promise<void>
}

/** The contents of a medium; committed changes count as carried out. */
export interface StoredState {
  /** The names of a type's objects, in any order. Throws if they cannot be listed. */
  names(type: string): Iterable<string>
  /** The text of an object; undefined if missing. Throws if it cannot be read. */
  text(type: string, name: string): string | undefined
  /** The location of an object, of a type, or of all, for messages: a path. */
  place(type?: string, name?: string): string
  /** Damage that leaves the contents unknown; with `types`, also objects of unknown types. */
  problems(types?: ReadonlySet<string>): readonly Problem[]
  /** Adds commands that mend an object to its problem; absent if objects are files. */
  withRemedy?(problem: Problem): Problem
  /** Shared records as lines, by path: journals of nodes, files of tokens. Absent if files beside it. */
  readonly journals?: ReadonlyMap<string, Iterable<string>>
  /** Foreign entries beside the objects of listed types: reported, not touched. */
  readonly foreign: readonly Problem[]
}

/** Place of unfinished changes in etcd, and in files of releases before the log: no type has this name. */
export const INTENTS = 'intents'

/** Throws TypeError for a name that no file can have, or that loading would skip. */
export function assertStorable(name: string): void {
  if (!/^[^./\0][^/\0]*$/.test(name) || Buffer.byteLength(name) > 200) {
    throw new TypeError(`${JSON.stringify(name)} cannot name a file of the store`)
  }
}
