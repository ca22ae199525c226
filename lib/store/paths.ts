import { join } from 'node:path'
import { isLeftover } from '../disk/replace.js'
import type { DiskStep } from '../disk/steps.js'

/** What one object's file has to hold; `undefined`: no file. */
export interface Write {
  readonly type: string
  readonly name: string
  readonly text: string | undefined
}

/** The directory of the intents, beside those of the types. */
export const INTENTS = 'intents'

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

/** Throws a TypeError for a name that no file can have, or that loading would skip. */
export function assertStorable(name: string): void {
  if (!/^[^./\0][^/\0]*$/.test(name) || Buffer.byteLength(name) > 200) {
    throw new TypeError(`${JSON.stringify(name)} cannot name a file of the store`)
  }
}

/** What a directory entry is: an object, a leftover of an interrupted atomic write, an editor's, or foreign. */
export type Entry = { object: string } | 'leftover' | 'ignored' | 'foreign'

/** What a file in a type's directory is, by its name. */
export function entryOf(fileName: string): Entry {
  if (isLeftover(fileName)) return 'leftover'
  if (fileName.startsWith('.') || fileName.endsWith('~')) return 'ignored'
  return fileName.endsWith('.json') ? { object: fileName.slice(0, -'.json'.length) } : 'foreign'
}
