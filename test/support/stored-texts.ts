import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMissing } from '../../lib/disk/file.js'
import { kinds } from '../../lib/model/types.js'
import { StoredFiles } from '../../lib/store/files/stored.js'
import { LAYOUT } from '../../lib/store/start.js'

/** Returns what `read` returns; undefined if the file was removed, or written under its name, meanwhile. */
function unlessGone<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (!isMissing(error)) throw error
    return undefined
  }
}

/** Returns the objects of a state directory: path → text. Files that the log promises count as written. */
export function objectTexts(
  state: string,
  stored = new StoredFiles(state),
  types: readonly string[] = [...Object.keys(kinds), LAYOUT]
): Record<string, string> {
  const found: Record<string, string> = {}
  for (const type of types)
    for (const name of stored.names(type)) {
      const text = unlessGone(() => stored.text(type, name))
      if (text !== undefined) found[`${type}/${name}.json`] = text
    }
  return found
}

/** `objectTexts` with the records of nodes and requests, as the files of a state without a log. */
export function storedTexts(state: string, stored = new StoredFiles(state)): Record<string, string> {
  const unread = (file: string, reason: string) => {
    throw new Error(`${file}: ${reason}`)
  }
  return { ...objectTexts(state, stored), ...Object.fromEntries(stored.recordFiles(unread)) }
}

/** Every file of a state directory as it is on the disk, the log too: path → bytes. */
export function rawFiles(state: string): Map<string, Buffer> {
  const found = new Map<string, Buffer>()
  for (const entry of readdirSync(state, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    const bytes = entry.isFile() ? unlessGone(() => readFileSync(file)) : undefined
    if (bytes) found.set(file.slice(state.length + 1), bytes)
  }
  return found
}

/** Whether all files of a state are written that its log promises. */
export const isWritten = (state: string): boolean =>
  [...new StoredFiles(state).promised()].every(
    ({ type, name, text }) => unlessGone(() => readFileSync(`${state}/${type}/${name}.json`, 'utf8')) === text
  )
