import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { jsonObjectOrEmpty } from '../../base/json.js'
import { unlessMissing } from '../../disk/file.js'

/** Key files that all controllers must share: tokens, secrets and passwords depend on them. */
const NAMES = ['secret.key', 'token.key'] as const

/** Returns a fingerprint per existing key; 32 random bytes cannot be guessed from it. */
export async function fingerprintsIn(state: string): Promise<Record<string, string>> {
  const marks: Record<string, string> = {}
  for (const name of NAMES) {
    const key = await unlessMissing(readFile(join(state, name)), undefined)
    if (key) marks[name] = fingerprintOf(name, key)
  }
  return marks
}

const fingerprintOf = (name: string, key: Buffer) =>
  createHash('sha256').update(`svcd ${name} `).update(key).digest('hex')

/** Compares files with the fingerprints; those without a fingerprint are in neither list. */
export function compareKeys(
  files: ReadonlyMap<string, Buffer>,
  kept: string | undefined
): { readonly alike: readonly string[]; readonly others: readonly string[] } {
  const marks = jsonObjectOrEmpty(kept ?? '')
  const known = [...files].filter(([name]) => typeof marks[name] === 'string')
  const names = (isAlike: boolean) =>
    known
      .filter(([name, key]) => (marks[name] === fingerprintOf(name, key)) === isAlike)
      .map(([name]) => name)
  return { alike: names(true), others: names(false) }
}

/**
 * Throws Error, with what to copy, for keys that differ from `kept` or are missing; without `kept` only for
 * missing ones while another controller leads. `removal`: the command that removes `kept` from etcd.
 */
export async function refuseOtherKeys(
  state: string,
  kept: string | undefined,
  isWritten: boolean,
  removal: string
): Promise<void> {
  if (kept === undefined && !isWritten) return
  const ours = await fingerprintsIn(state)
  const missing = NAMES.filter(name => !(name in ours))
  const theirs = jsonObjectOrEmpty(kept ?? '')
  const other = NAMES.filter(name => name in ours && name in theirs && ours[name] !== theirs[name])
  if (missing.length === 0 && other.length === 0) return
  const wrong = [
    ...missing.map(name => `${join(state, name)} is not there`),
    ...other.map(name => `${join(state, name)} is not the one of the svcd that wrote last`)
  ]
  throw new Error(
    `${isWritten ? 'another svcd writes, and ' : ''}${wrong.join(', and ')}: copy secret.key, token.key ` +
      'and admin-password from the state directory of a controller that wrote to this etcd, mode 0600 ' +
      '(svcd join HOST does that)' +
      (isWritten ? '' : `; to begin with other keys, stop svcd on all controllers and type ${removal}`)
  )
}
