import { lstat, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { mountsBelow } from '../../disk/open-directory.js'

/** The part of a tree that is packed: all but excluded paths and mounts. Plain data, for a worker thread. */
export interface Contents {
  /** A real directory, with no link left, or the path of one that is held open. */
  readonly tree: string
  /** As `pattern` returns them. */
  readonly excludes: readonly string[]
  readonly mounts: readonly MountPoint[]
}

/** Something mounted in a tree. A pack leaves it out, as it may lie outside `[image] directory`. */
interface MountPoint {
  /** `./proc`. */
  readonly path: string
  /** A directory is packed empty, anything else is not packed. */
  readonly isDirectory: boolean
  /** It has the tree's own device number, which does not show the mount. */
  readonly isBound: boolean
}

/**
 * Finds the mounts in a real directory. Throws an Error for an exclude that names no path, and for a mount
 * point whose name is not UTF-8, as it could not be left out.
 */
export async function contentsOf(tree: string, excludes: readonly string[]): Promise<Contents> {
  const { dev } = await lstat(tree)
  const real = await realpath(tree)
  const points = [...new Set(await mountsBelow(real))].filter(point => point !== real)
  const outer = points.filter(point => !points.some(other => point.startsWith(`${other}/`)))
  const mounts = outer.map(async point => {
    const path = `.${point.slice(real.length)}`
    if (path.includes('\ufffd'))
      throw new Error(`something is mounted in the image at ${point}, a name that is not UTF-8`)
    const stat = await lstat(join(tree, path))
    return { path, isDirectory: stat.isDirectory(), isBound: stat.dev === dev }
  })
  return { tree, excludes: excludes.map(tarPattern), mounts: await Promise.all(mounts) }
}

/**
 * Turns an exclude (`/var/cache/*`) into a pattern of GNU tar for members named `./…`: `*` stands for any
 * bytes without a slash, `?` for one, a backslash quotes. A match is left out with all below it. Throws an
 * Error for an exclude that names no path.
 */
export function tarPattern(exclude: string): string {
  const path = exclude
    .split('/')
    .filter(name => name !== '' && name !== '.')
    // A character class of GNU tar and a final backslash stand for themselves here.
    .map(name => name.replace(/\\?./gs, piece => (piece === '[' || piece === '\\' ? `\\${piece}` : piece)))
    .join('/')
  if (path === '') throw new Error(`exclude ${JSON.stringify(exclude)} names no path in an image`)
  return `./${path}`
}

/** Returns a pattern that matches only this path (`./a/b`). */
export const literalPattern = (path: string): string => path.replace(/[*?[\\]/g, '\\$&')

/** Returns GNU tar's options that leave out these patterns. */
export const tarOptions = (patterns: readonly string[]): string[] => [
  ...'--anchored --wildcards --no-wildcards-match-slash'.split(' '),
  ...patterns.map(text => `--exclude=${text}`)
]

/** Returns a function that matches a path (`./a/b`, a character per byte) against the patterns. */
export function matcher(patterns: readonly string[]): (path: string) => boolean {
  if (patterns.length === 0) return () => false
  const expressions = patterns.map(text =>
    Buffer.from(text, 'utf8').toString('latin1').replace(/\\?./gs, expression)
  )
  const any = new RegExp(`^(?:${expressions.join('|')})$`)
  return path => any.test(path)
}

function expression(piece: string): string {
  if (piece === '*') return '[^/]*'
  if (piece === '?') return '[^/]'
  const code = piece.charCodeAt(piece.length - 1).toString(16)
  return `\\x${code.padStart(2, '0')}`
}
