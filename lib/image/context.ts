import type { Mutex } from '../concurrency.js'
import type { Config } from '../config/types.js'
import type { Work } from '../helper/work.js'
import type { Log } from '../log.js'
import type { Model } from '../model/model.js'
import type { PackDoc } from '../model/types/osimage.js'
import type { Intents } from './intents.js'

/** The controllers that share the objects: the directory of an image is on one of them. */
export interface Controllers {
  /** The name of this one. */
  readonly own: string
  /** The names of those beside it that are there. */
  readonly others: () => readonly string[]
  /** Asks those beside it for a file of the files directory; gives the sentence that one has it, or may have it, if that is so. */
  readonly whoHas: (file: string, signal: AbortSignal) => Promise<string | undefined>
  /** The names of those beside it that have all files of a pack, as it was packed. */
  readonly having: (pack: PackDoc, signal: AbortSignal) => Promise<readonly string[]>
  /** Returns the directories of deleted images that are out of their places on another controller. */
  readonly outOfPlace: (controller: string) => readonly string[]
}

/** The parts that all work on images uses. */
export interface ImageContext {
  readonly config: Pick<Config, 'image' | 'paths' | 'ssh' | 'store' | 'torrent'>
  readonly model: Model
  /** Absent: there is this one alone. */
  readonly controllers?: Controllers | undefined
  readonly intents: Intents
  /** Does what needs root: all that reads files of images, or changes them. */
  readonly work: Work
  readonly log: Log
  /** Milliseconds since 1970, for what is stored and shown. */
  readonly now: () => number
  /** Milliseconds that only grow, for durations: the clock may be set. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed, and until that is stored. */
  readonly files: Mutex
  /** The names of packs that are stored, and that their images have as soon as a second controller has them. */
  readonly coming: Set<string>
}
