import { readdirSync } from 'node:fs'
import { isLeftover, isMissing } from '../../disk/file.js'

/** Lists a directory, sorted; empty if it is missing. */
export function listing(directory: string): string[] {
  try {
    return readdirSync(directory).sort()
  } catch (error) {
    if (isMissing(error)) return []
    throw error
  }
}

/** A directory entry: an object, a leftover of an interrupted atomic write, an editor's file, or foreign. */
type DirectoryEntry = { object: string } | 'leftover' | 'ignored' | 'foreign'

/** Classifies a file in a type's directory by its name. */
export function entryOf(fileName: string): DirectoryEntry {
  if (isLeftover(fileName)) return 'leftover'
  if (fileName.startsWith('.') || fileName.endsWith('~')) return 'ignored'
  return fileName.endsWith('.json') ? { object: fileName.slice(0, -'.json'.length) } : 'foreign'
}

/** `<directory>/<type>/<name>.json`; without `join`, which would take 5 % of a large start. */
export function objectFile(directory: string, type: string, name: string): string {
  return `${directory}/${type}/${name}.json`
}
