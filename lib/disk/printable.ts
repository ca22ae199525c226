import { isUtf8 } from 'node:buffer'
import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { promisify } from 'node:util'

/**
 * A file's name for a person to read, on one line whatever it holds: control characters and backslashes are escaped,
 * and where the bytes are not UTF-8 all that is not ASCII.
 */
export function shown(name: Buffer): string {
  const text = isUtf8(name)
    ? name.toString('utf8')
    : name.toString('latin1').replace(/[\u0080-\u00ff]/g, octal)
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, octal)
}

const octal = (character: string) =>
  Buffer.from(character, character < '\u0100' ? 'latin1' : 'utf8').reduce(
    (text, byte) => `${text}\\${byte.toString(8).padStart(3, '0')}`,
    ''
  )

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
