import { isObject, type JsonValue } from '../../base/json.js'
import { oneOf, valueType } from '../field.js'
import { isFileName } from '../names.js'

/** The form of a root in memory: files that are unpacked, or a file system that is only read. */
export const rootFormat = oneOf('tar', 'squashfs', 'erofs')
export type RootFormat = 'tar' | 'squashfs' | 'erofs'

/** A file system with the content of a pack, and the hash tree of dm-verity behind it in the same file. */
export interface PackRoot {
  readonly format: Exclude<RootFormat, 'tar'>
  /** Below the files directory. */
  readonly file: string
  readonly sha256: string
  readonly bytes: number
  /** The root hash of dm-verity: SHA-256 without salt over blocks of 4096 bytes, in hex. */
  readonly roothash: string
  /** Bytes of the file system, where the hash tree begins. */
  readonly hashoffset: number
}

/** Roots of one pack, the newest of a format first: those of before stay, as nodes may stream them. */
export const MOST_ROOTS = 8

const isDigest = (value: unknown) => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)

function isRoot(value: JsonValue): boolean {
  const { format, file, sha256, bytes, roothash, hashoffset, ...rest } = isObject(value) ? value : {}
  return (
    Object.keys(rest).length === 0 &&
    (format === 'squashfs' || format === 'erofs') &&
    typeof file === 'string' &&
    isFileName(file) &&
    isDigest(sha256) &&
    isDigest(roothash) &&
    [bytes, hashoffset].every(Number.isSafeInteger)
  )
}

/** Reads the stored `roots` of a pack, which only svcd writes. */
export const packRoots = valueType<readonly PackRoot[]>(
  'a list of objects with format, file, sha256, bytes, roothash and hashoffset',
  'array',
  value =>
    Array.isArray(value) && value.length <= MOST_ROOTS && value.every(isRoot)
      ? (value as unknown as readonly PackRoot[])
      : undefined
)
