import { join } from 'node:path'
import { isLeftover } from '../../disk/replace.js'
import type { DiskStep } from '../../disk/steps.js'
import { INTENTS } from '../medium.js'

/** `<directory>/<type>/<name>.json`; not by `join`, of whose time a start with many objects would have a twentieth. */
export function objectFile(directory: string, type: string, name: string): string {
  return `${directory}/${type}/${name}.json`
}

/** `<directory>/intents/<number>.json`, the digits padded so that a listing shows the order. */
export function intentFile(directory: string, number: number): string {
  return join(directory, INTENTS, `${String(number).padStart(12, '0')}.json`)
}

/** Gives an object's file what it has to hold. */
export const fileStep = (file: string, text: string | undefined): DiskStep =>
  text === undefined ? { remove: file } : { replace: file, text }

/** What a directory entry is: an object, a leftover of an interrupted atomic write, an editor's, or foreign. */
export type Entry = { object: string } | 'leftover' | 'ignored' | 'foreign'

/** What a file in a type's directory is, by its name. */
export function entryOf(fileName: string): Entry {
  if (isLeftover(fileName)) return 'leftover'
  if (fileName.startsWith('.') || fileName.endsWith('~')) return 'ignored'
  return fileName.endsWith('.json') ? { object: fileName.slice(0, -'.json'.length) } : 'foreign'
}
