import { isUtf8 } from 'node:buffer'
import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { promisify } from 'node:util'

/**
 * Returns a file name on one printable line: control characters and backslashes are escaped, and all
 * non-ASCII bytes if it is not UTF-8.
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

/** Returns a user's name, or the number if there is none. */
export async function nameOf(uid: number): Promise<string> {
  const named = await promisify(execFile)('id', ['-nu', '--', `${uid}`]).catch(() => undefined)
  return named?.stdout.trim() || `${uid}`
}

/** Returns the prefix with which root runs a command as the owner of a directory; '' if root owns it. */
export async function runuserPrefix(directory: string): Promise<string> {
  const { uid } = await stat(directory)
  return uid === 0 ? '' : `runuser -u ${await nameOf(uid)} -- `
}
