import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { promisify } from 'node:util'

/** The user's name, or the number where it has none. */
export async function nameOf(uid: number): Promise<string> {
  const named = await promisify(execFile)('id', ['-nu', '--', `${uid}`]).catch(() => undefined)
  return named?.stdout.trim() || `${uid}`
}

/**
 * What root types before a command on a directory, so that it runs as the user whose that is; '' where that is root. Who reads the message of
 * a unit, or of a check as its user, is root.
 */
export async function asOwnerOf(directory: string): Promise<string> {
  const { uid } = await stat(directory)
  return uid === 0 ? '' : `runuser -u ${await nameOf(uid)} -- `
}
