import type { Config } from '../config/types.js'
import type { Log } from '../log.js'
import type { Actor, Model } from '../model/model.js'
import type { Works } from './intents.js'
import type { Turn } from './turn.js'

/** What the work on images is done with. */
export interface Workshop {
  readonly config: Pick<Config, 'image' | 'paths' | 'ssh' | 'torrent'>
  readonly model: Model
  readonly works: Works
  readonly log: Log
  readonly now: () => number
  /** Whoever gives files of the files directory their names, or removes some, has the turn while it stores that. */
  readonly files: Turn
}

/** The daemon, where it changes something that nobody asked for. */
export const itself: Actor = { who: 'svcd', from: '-', takesAddresses: false }
