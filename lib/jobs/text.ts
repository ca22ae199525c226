import { oneLine } from '../log.js'

/** Why something failed, as one line. */
export const reasonOf = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error))
