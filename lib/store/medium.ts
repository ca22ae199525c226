import type { Problem } from './errors.js'

/** What one object has to be stored as; `undefined`: not at all. */
export interface Write {
  readonly type: string
  readonly name: string
  readonly text: string | undefined
}

/** A write with what was stored after the last commit, for a medium that has to take it back by itself. */
export interface Revertible extends Write {
  readonly textBefore: string | undefined
}

/**
 * Where a store keeps its objects, as texts. One store uses it, in this order: `lock`, `read`, `start`, then `commit` again
 * and again, one at a time, and `close` whatever came before. Who only looks calls `read` alone.
 */
export interface Medium {
  /** Takes the right to write. Throws an Error that names who has it. */
  lock(): Promise<void>
  /** What is stored. It writes nothing, and needs no right to write. */
  read(): Promise<Stored>
  /**
   * Makes ready to write objects of these types, and finishes in the background what a crash interrupted. `read` found it whole.
   * Where another may get the right to write, `followed` is told what that one writes.
   */
  start(types: Iterable<string>, followed?: Followed): Promise<void>
  /**
   * Resolves when all the writes (at most one for an object) will outlive a power cut; when it throws, none does, and none
   * ever will. Without writes it tries whether the next commit would succeed.
   */
  commit(writes: readonly Revertible[]): Promise<void>
  /** Why writing is not, or will soon not be, possible; '' when all is well. */
  readonly problem: string
  /** Whether the right to write is not ours. Absent where nobody else may get it. */
  readonly isFollowing?: boolean
  /** Says who writes while the right to write is not ours, '' while it is. Absent where nobody else may get it. */
  readonly following?: string
  /** As in SharedMedium. */
  readonly writer?: Reached | undefined
  /** Where an object is, for messages; absent where nobody else writes. */
  place?(type: string, name: string): string
  /** Ends what goes on in the background, and gives the right to write back. */
  close(): Promise<void>
}

/** A medium that several stores share: one writes, the others follow. */
export interface SharedMedium extends Medium {
  readonly isFollowing: boolean
  readonly following: string
  /** Where who writes is reached while that is another one; undefined where nobody writes, or that is not known. */
  readonly writer: Reached | undefined
  /** The right to write that this one has, as in Reached; undefined where it has none. */
  readonly right: string | undefined
  /** Which part this one has, and how far it knows what is committed. */
  readonly standing: Standing
  /** The controllers that share it, without this one. */
  readonly others: readonly Controller[]
  /** Which other one has the name of this one, in a sentence with the way out; '' where none has. */
  readonly namesake: string
  /**
   * Tells the others of this controller from now on, and lists them. `now`: its clock, milliseconds since 1970;
   * `trees`: as in Controller, asked each time.
   */
  join(self: Controller, now: () => number, trees?: () => readonly string[]): void
  /**
   * In the place of `lock` and `start`, after `read`: tells what is written from then on, and takes the right to write when
   * nobody has it, once all that was written before has been told. `isWhole`: what was read is what is known; otherwise all is
   * read again, until it can be told. A right to write is given back.
   */
  follow(followed: Followed, isWhole?: boolean): void
}

/** Where a store stands among those that share a medium. */
export interface Standing {
  /** `unknown`: it wrote last, and does not know whether it still may: it does not reach what is shared, or its time is over. */
  readonly role: 'primary' | 'standby' | 'unknown'
  /** The number of the last commit that is known here. */
  readonly revision: number
  /** How long ago it was last known that nothing is missing here, in milliseconds; 0 where it writes. */
  readonly lag_ms: number
}

/** A controller, as it tells of itself. */
export interface Controller {
  readonly name: string
  /** The name of its machine. */
  readonly host: string
  readonly address: string
  readonly port: number
  /** The path of its ini. */
  readonly ini: string
  /** Where others reach it, http or https; absent where it is of a release that does not tell. */
  readonly url?: string
  /** Digests of what has to be alike in the ini of all, by its words; absent where it is of a release that does not tell. */
  readonly digests?: Readonly<Record<string, string>>
  /** Directories of deleted images that are out of their places there (`outOfPlace` of removals.ts). */
  readonly trees?: readonly string[]
  /** How far its clock is ahead of this one's, in milliseconds; absent for itself, until that is known, and as above. */
  readonly aheadMs?: number
}

/** Another svcd. */
export interface Reached {
  /** Its URL, http or https. */
  readonly url: string
  /** Its right to write: another one each time that somebody gets it. */
  readonly right: string
  /** Aborted when it writes no more. */
  readonly gone: AbortSignal
}

/** Who is told of what others write. What is told under way is waited for before anything else is told. */
export interface Followed {
  /** One commit, at most one write for an object. */
  changed(writes: readonly Write[]): Promise<void>
  /** All that is stored, where it is not known any more what was written since what was told last. */
  reload(stored: Stored): Promise<void>
  /** Nobody else writes any more: the right to write is ours now. */
  promoted(): void
  /** Another one writes, or may: the right to write is not ours any more. */
  demoted(): void
}

/** What a medium holds: changes that are committed and not carried out yet count as carried out. */
export interface Stored {
  /** The names of a type's objects, in any order. Throws where they cannot be listed. */
  names(type: string): Iterable<string>
  /** What an object is stored as; undefined where there is none. Throws where it cannot be read. */
  text(type: string, name: string): string | undefined
  /** Where an object is, or a type's objects, or all, in words for a person: the path of a file. */
  place(type?: string, name?: string): string
  /** Damage that leaves unknown what is stored; with `types`, that something is stored of others. */
  problems(types?: ReadonlySet<string>): readonly Problem[]
  /** A problem with the commands that put it right, where it is of an object; absent where it is a file. */
  mended?(problem: Problem): Problem
  /** Journals of what nodes report, by name, as the lines of a file; absent where they are files beside it. */
  readonly journals?: ReadonlyMap<string, Iterable<string>>
  /** What is beside the objects of the types that were listed, and none of ours: reported, and left alone. */
  readonly foreign: readonly Problem[]
}

/** What a medium keeps its unfinished changes under, beside the types: no type has this name. */
export const INTENTS = 'intents'

/** Throws a TypeError for a name that no file can have, or that loading would skip. */
export function assertStorable(name: string): void {
  if (!/^[^./\0][^/\0]*$/.test(name) || Buffer.byteLength(name) > 200) {
    throw new TypeError(`${JSON.stringify(name)} cannot name a file of the store`)
  }
}
