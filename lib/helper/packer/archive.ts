import { isUtf8 } from 'node:buffer'
import {
  type BigIntStats,
  closeSync,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync
} from 'node:fs'
import { Header, Pax } from 'tar'
import { shown } from '../../base/log.js'
import { DIRECTORY, entryPath, FILE, mountOf } from '../../disk/open-directory.js'
import { type Contents, matcher } from './contents.js'
import { type Omissions, OTHER_FILESYSTEM, SOCKETS } from './packer.js'

const BLOCK_BYTES = 512
const CHUNK_BYTES = 256 * 1024
const NOT_UTF8 = 'files with a name or a link target that is not UTF-8 are left out'
const HOLES = 'files that take less disk than their size (sparse ones) are packed in full'

/**
 * Yields a tree as a tar archive; `omitted` gets what it cannot carry. The same tree gives the same bytes.
 * Throws an Error naming a file that cannot be read or changes. It blocks, so it runs in a worker thread.
 */
export function* archive(options: Walk, omitted: Omissions): Generator<Buffer> {
  const leaveOut = (path: string) => {
    if (options.leaveOut(path)) return true
    if (isText(path)) return false
    omitted.add(NOT_UTF8, printable(path))
    return true
  }
  const links = new Map<string, string>()
  for (const member of walk({ ...options, leaveOut })) {
    if (member.isOtherFilesystem) omitted.add(OTHER_FILESYSTEM, printable(member.path))
    if (!member.isOtherFilesystem || member.stat.isDirectory()) yield* entry(member, links, omitted)
  }
  yield Buffer.alloc(2 * BLOCK_BYTES)
}

function* entry(member: Member, links: Map<string, string>, omitted: Omissions): Generator<Buffer> {
  const { stat } = member
  const path = text(member.path)
  const inode = `${stat.dev}:${stat.ino}`
  const linkpath = links.get(inode)
  if (linkpath !== undefined) return yield* head(path, stat, { type: 'Link', linkpath })
  const kind = kindOf(member)
  if ('unable' in kind) return omitted.add(kind.unable, printable(member.path))
  if (stat.nlink > 1n && !stat.isDirectory()) links.set(inode, path)
  if (kind.type !== 'File') yield* head(stat.isDirectory() ? `${path}/` : path, stat, kind)
  else {
    if (stat.blocks * BigInt(BLOCK_BYTES) < stat.size - 4096n) omitted.add(HOLES, printable(member.path))
    yield* file(path, member)
  }
}

/** The fields of a header that only some types have. */
interface Kind {
  readonly type: 'File' | 'Directory' | 'SymbolicLink' | 'Link' | 'FIFO' | 'CharacterDevice' | 'BlockDevice'
  readonly linkpath?: string
  readonly devmaj?: number
  readonly devmin?: number
}

function kindOf({ path, openPath, stat }: Member): Kind | { readonly unable: string } {
  if (stat.isFile()) return { type: 'File' }
  if (stat.isDirectory()) return { type: 'Directory' }
  if (stat.isFIFO()) return { type: 'FIFO' }
  if (stat.isCharacterDevice()) return { type: 'CharacterDevice', ...device(stat.rdev) }
  if (stat.isBlockDevice()) return { type: 'BlockDevice', ...device(stat.rdev) }
  if (!stat.isSymbolicLink()) return { unable: SOCKETS }
  const target = namingMember(path, () => readlinkSync(openPath, 'latin1'))
  return isText(target) ? { type: 'SymbolicLink', linkpath: text(target) } : { unable: NOT_UTF8 }
}

/** Splits a device number into Linux's major and minor. */
function device(rdev: bigint): { devmaj: number; devmin: number } {
  const devmaj = ((rdev >> 8n) & 0xfffn) | ((rdev >> 32n) & ~0xfffn)
  const devmin = (rdev & 0xffn) | ((rdev >> 12n) & ~0xffn)
  return { devmaj: Number(devmaj), devmin: Number(BigInt.asUintN(32, devmin)) }
}

/** Yields a header block, after an extended one for a long name or a part of a second. */
function* head(path: string, stat: BigIntStats, kind: Kind): Generator<Buffer> {
  const ms = Number(stat.mtimeMs)
  const fields = {
    path,
    uid: Number(stat.uid),
    gid: Number(stat.gid),
    size: kind.type === 'File' ? Number(stat.size) : 0,
    ...kind
  }
  const seconds = new Date(Math.floor(ms / 1000) * 1000)
  const header = new Header({ ...fields, mode: Number(stat.mode & 0o7777n), mtime: seconds })
  const needsMore = header.encode()
  // The library cannot write parts of a second of times before 1970.
  const mtime = ms < 0 ? seconds : new Date(ms)
  if (needsMore || mtime > seconds) yield new Pax({ ...fields, mtime }).encode()
  yield header.block as Buffer
}

function* file(path: string, member: Member): Generator<Buffer> {
  const fd = namingMember(member.path, () => openSync(member.openPath, FILE))
  try {
    // Names may have changed since they were listed.
    if (mountOf(fd) !== member.mount) throw new Error(`${printable(member.path)}: something is mounted there`)
    unchanged(member.path, fd, member.stat)
    yield* head(path, member.stat, { type: 'File' })
    const size = Number(member.stat.size)
    for (let position = 0; position < size; ) {
      const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - position))
      const read = namingMember(member.path, () => readSync(fd, chunk, 0, chunk.length, position))
      if (read === 0) break
      yield chunk.subarray(0, read)
      position += read
    }
    unchanged(member.path, fd, member.stat)
    yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES)
  } finally {
    closeSync(fd)
  }
}

const isText = (bytes: string) => isUtf8(Buffer.from(bytes, 'latin1'))
const text = (bytes: string) => Buffer.from(bytes, 'latin1').toString('utf8')

/** A file of a tree, of whatever type. */
interface Member {
  /** The path from the tree, `.` or `./a/b`, one character per byte, as a name need not be UTF-8. */
  readonly path: string
  /** The path to open it by, good until the next member is asked for. */
  readonly openPath: Buffer
  readonly stat: BigIntStats
  /** The mount of the tree (disk/open-directory.ts). What is opened must be of it. */
  readonly mount: string | undefined
  /** On another file system, or mounted: it is not entered, and must not be read. */
  readonly isOtherFilesystem: boolean
}

interface Walk {
  readonly tree: string
  /** Whether a path (`./a/b`), with all below it, is left out. */
  readonly leaveOut: (path: string) => boolean
  /** Paths (`./a/b`) where something is mounted, be it from the same file system. */
  readonly mounts: ReadonlySet<string>
}

/** Returns the walk over the packed part of a tree. */
export const walkOf = ({ tree, excludes, mounts }: Contents): Walk => ({
  tree,
  leaveOut: matcher(excludes),
  mounts: new Set(mounts.map(({ path }) => Buffer.from(path, 'utf8').toString('latin1')))
})

/**
 * Yields every file of a tree, sorted by the bytes of names, a directory before its members, and never leaves
 * the tree. Throws an Error naming what cannot be read or changes. It blocks.
 */
export function* walk(options: Walk): Generator<Member> {
  const fd = openSync(options.tree, DIRECTORY)
  try {
    const stat = fstatSync(fd, { bigint: true })
    const mount = mountOf(fd)
    yield { path: '.', openPath: entryPath(fd, ''), stat, mount, isOtherFilesystem: false }
    yield* inDirectory(options, fd, '.', stat, mount)
  } finally {
    closeSync(fd)
  }
}

function* inDirectory(
  options: Walk,
  directory: number,
  path: string,
  before: BigIntStats,
  mount: string | undefined
): Generator<Member> {
  const names = namingMember(path, () => readdirSync(entryPath(directory, ''), 'latin1'))
  for (const name of names.sort()) {
    const inner = `${path}/${name}`
    if (options.leaveOut(inner)) continue
    const here = entryPath(directory, Buffer.from(name, 'latin1'))
    const stat = namingMember(inner, () => lstatSync(here, { bigint: true }))
    const isListed = stat.dev !== before.dev || options.mounts.has(inner)
    if (!stat.isDirectory() || isListed) {
      yield { path: inner, openPath: here, stat, mount, isOtherFilesystem: isListed }
      continue
    }
    const fd = namingMember(inner, () => openSync(here, DIRECTORY))
    try {
      // It may have been mounted since the mounts were listed.
      const isElsewhere = mountOf(fd) !== mount
      yield { path: inner, openPath: here, stat, mount, isOtherFilesystem: isElsewhere }
      if (!isElsewhere) yield* inDirectory(options, fd, inner, stat, mount)
    } finally {
      closeSync(fd)
    }
  }
  unchanged(path, directory, before)
}

/** Throws an Error when an open file is another one than at `before`, or has changed since. */
function unchanged(path: string, fd: number, before: BigIntStats): void {
  const now = namingMember(path, () => fstatSync(fd, { bigint: true }))
  const stamp = ['dev', 'ino', 'size', 'mtimeNs', 'ctimeNs'] as const
  if (stamp.some(key => now[key] !== before[key]))
    throw new Error(`${printable(path)}: file changed as we read it`)
}

/** Runs `work` on a member. Its error names the member, not the path by which it was opened. */
function namingMember<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new Error(`${printable(path)}: cannot be read (${code ?? error})`, { cause: error })
  }
}

/** Escapes a member's path for a message. */
const printable = (path: string): string => shown(Buffer.from(path, 'latin1'))
