import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { createOnce } from '../disk/create-once.js'
import { unlessMissing } from '../disk/missing.js'
import { readRegularFile } from '../disk/regular-file.js'

/** Where the first admin's password stands while the ini names no user (rules 5.1). */
export function adminPasswordFile(stateDirectory: string): string {
  return join(stateDirectory, 'admin-password')
}

/**
 * Makes the file at the first start: a random password alone on a line, mode 0600. True when it was made now.
 * @throws Error when the file is there without a password in it
 */
export async function ensureAdminPassword(file: string): Promise<boolean> {
  if (await createOnce(file, `${randomBytes(18).toString('base64url')}\n`)) return true
  if ((await readAdminPassword(file)) === undefined)
    throw new Error(`${file} holds no password: remove it, and the next start makes a new one`)
  return false
}

/** The password on the file's first line; undefined when there is no file or nothing on that line. */
export async function readAdminPassword(file: string): Promise<string | undefined> {
  const text = await unlessMissing(readRegularFile(file).then(String), '')
  return text.split(/\r?\n/, 1)[0] || undefined
}
