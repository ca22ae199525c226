import type { Mutex } from '../base/concurrency.js'
import { unavailable } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { Config } from '../config/types.js'
import type { RootHelper } from '../helper/commands.js'
import type { Model } from '../model/model.js'
import type { Tx } from '../model/stored.js'
import type { OsimageDoc, PackDoc } from '../model/types/osimage.js'
import type { Manifest } from './manifest.js'
import type { Notes } from './notes.js'

/** The controllers that share the objects. The directory of an image is on one of them. */
export interface Controllers {
  readonly own: string
  /** Returns the names of the others that are there. */
  readonly others: () => readonly string[]
  /** Asks the others for a file of the files directory. Returns a sentence if one has it, or may have it. */
  readonly whoHas: (file: string, signal: AbortSignal) => Promise<string | undefined>
  /** Returns the names of the others that have all files of a pack, unchanged. */
  readonly having: (pack: PackDoc, signal: AbortSignal) => Promise<readonly string[]>
  /** Returns the directories of deleted images that are out of their places on another controller. */
  readonly outOfPlace: (controller: string) => readonly string[]
}

export interface ImageContext {
  readonly config: Pick<Config, 'image' | 'paths' | 'ssh' | 'store' | 'torrent'>
  readonly model: Model
  /** Absent: there is one controller alone. */
  readonly controllers?: Controllers | undefined
  /** Whether this controller leads: it stores objects, and works on its own directories. */
  readonly ownsObjects: () => boolean
  readonly notes: Notes
  /** Does work that needs root: all that reads or changes files of images. */
  readonly work: RootHelper
  readonly log: Log
  /** Milliseconds since 1970, for what is stored and shown. */
  readonly now: () => number
  /** Monotonic milliseconds, for durations. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed, until that is stored. */
  readonly files: Mutex
  /** The files of svcd's in the files directory. Absent: there is one controller alone. */
  readonly manifest?: Manifest | undefined
  /** Stored packs that their images get once a second controller has them. */
  readonly coming: Set<string>
}

/** 503: the directory or a file of an OS image cannot be used. */
export const unusable = (image: string, why: string, cause?: unknown) =>
  unavailable(`OS image ${image}: ${why}`, 'image-unusable', cause)

/** Returns an image to store. Throws 503 if it has gone or its `path` was changed while `what`. */
export function sameImage(
  tx: Tx,
  { name, path }: { readonly name: string; readonly path?: string | undefined },
  what: string
): OsimageDoc {
  const now = tx.get('osimage', name)
  if (!now) throw unavailable(`OS image ${name} was deleted or renamed while ${what}`, 'image-changed')
  if (now.path === path) return now
  throw unavailable(`OS image ${name}: field "path" was changed while ${what}`, 'image-changed')
}
