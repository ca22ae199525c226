import { join } from 'node:path'
import { exists } from '../disk/missing.js'

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
