import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isObject, type JsonObject } from '../../json.js'

/** The files of a state directory that all controllers must have alike: tokens, secrets and passwords hang on them. */
const NAMES = ['secret.key', 'token.key'] as const

/** A mark for each key that is there; nobody can guess a key of 32 random bytes by it. */
export async function marksIn(state: string): Promise<Record<string, string>> {
  const marks: Record<string, string> = {}
  for (const name of NAMES) {
    const key = await readFile(join(state, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      return undefined
    })
    if (key) marks[name] = createHash('sha256').update(`svcd ${name} `).update(key).digest('hex')
  }
  return marks
}

/**
 * Throws Error, with what to copy from where, for keys that are not those of `kept`, or are not there; without `kept` only for
 * those that are not there while another one writes. `marksAt` is the key of etcd that `kept` is from.
 */
export async function refuseOtherKeys(
  state: string,
  kept: string | undefined,
  isWritten: boolean,
  marksAt: string
): Promise<void> {
  if (kept === undefined && !isWritten) return
  const ours = await marksIn(state)
  const missing = NAMES.filter(name => !(name in ours))
  const theirs = kept === undefined ? {} : marksOf(kept)
  const other = NAMES.filter(name => name in ours && name in theirs && ours[name] !== theirs[name])
  if (missing.length === 0 && other.length === 0) return
  const wrong = [
    ...missing.map(name => `${join(state, name)} is not there`),
    ...other.map(name => `${join(state, name)} is not the one of the svcd that wrote last`)
  ]
  throw new Error(
    `${isWritten ? 'another svcd writes, and ' : ''}${wrong.join(', and ')}: copy secret.key, token.key and admin-password from the ` +
      'state directory of a controller that wrote to this etcd, mode 0600' +
      (isWritten ? '' : `; to begin with other keys, remove ${marksAt} (etcdctl del) while no svcd runs`)
  )
}

function marksOf(text: string): JsonObject {
  try {
    const json: unknown = JSON.parse(text)
    return isObject(json) ? json : {}
  } catch {
    return {}
  }
}
