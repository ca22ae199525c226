import { count, file, oneOf, type Stored, sha256, type Table, valueType } from '../field.js'
import { listOf } from '../table.js'

/** The form of a root in memory: files that are unpacked, or a file system that is only read. */
export const rootFormat = oneOf('tar', 'squashfs', 'erofs')
export type RootFormat = 'tar' | 'squashfs' | 'erofs'

const fields = [
  { name: 'file', type: file, required: true, meaning: 'below the files directory' },
  { name: 'format', type: oneOf('squashfs', 'erofs'), required: true, meaning: 'its form' },
  { name: 'sha256', type: sha256, required: true, meaning: 'checksum of the file' },
  { name: 'bytes', type: count, required: true, meaning: 'size of the file' },
  {
    name: 'roothash',
    type: sha256,
    required: true,
    meaning: 'root hash of dm-verity: SHA-256 without salt, blocks of 4096 bytes'
  },
  {
    name: 'hashoffset',
    type: count,
    required: true,
    meaning: 'bytes of the file system, behind which the hash tree begins'
  }
] as const satisfies Table

/** A file system with the content of a pack, and the hash tree of dm-verity behind it in the same file. */
export type PackRoot = Stored<typeof fields>

/** Roots of one pack, the newest of a format first: those of before stay, as nodes may stream them. */
export const MOST_ROOTS = 8

const roots = listOf<PackRoot>('root', fields)

/** Reads the stored `roots` of a pack, which only svcd writes. */
export const packRoots = valueType<readonly PackRoot[]>(
  'a list of objects with format, file, sha256, bytes, roothash and hashoffset',
  'array',
  value => (Array.isArray(value) && value.length > MOST_ROOTS ? undefined : roots.read(value, true))
)
