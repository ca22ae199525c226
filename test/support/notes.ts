// Notes of work on images, as the state directory has them: in their files, and in the log.
import { StoredFiles } from '../../lib/store/files/stored.js'

/** The ids of the notes in a state directory, which a daemon may be writing. */
export const notesIn = (state: string, stored = new StoredFiles(state)): string[] =>
  [...stored.names('work')].sort()
