import { type BigIntStats, closeSync, fstatSync, lstatSync, openSync, readdirSync } from 'node:fs'
import { shown } from '../../base/log.js'
import { DIRECTORY, entryPath, mountOf } from '../../disk/open-directory.js'
import { type Contents, matcher } from './contents.js'

/** A file of a tree, of whatever type. */
export interface Member {
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

export interface Walk {
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

/** Throws an Error for an open file of another mount: names may have changed since they were listed. */
export function unmounted(path: string, fd: number, mount: string | undefined): void {
  if (mountOf(fd) !== mount) throw new Error(`${printable(path)}: something is mounted there`)
}

/** Throws an Error when an open file is another one than at `before`, or has changed since. */
export function unchanged(path: string, fd: number, before: BigIntStats): void {
  const now = namingMember(path, () => fstatSync(fd, { bigint: true }))
  const isSame = (['dev', 'ino', 'size', 'mtimeNs', 'ctimeNs'] as const).every(
    key => now[key] === before[key]
  )
  if (!isSame) throw new Error(`${printable(path)}: file changed as we read it`)
}

/** Runs `work` on a member. Its error names the member, not the path by which it was opened. */
export function namingMember<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new Error(`${printable(path)}: cannot be read (${code ?? error})`, { cause: error })
  }
}

/** Escapes a member's path for a message. */
export const printable = (path: string): string => shown(Buffer.from(path, 'latin1'))
