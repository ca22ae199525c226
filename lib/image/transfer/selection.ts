import { posix } from 'node:path'
import { identity, keptByPush, neverDeleted, volatile } from './kept.js'

/** What of a system is grabbed or pushed: the fields of the OS image, checked. */
export interface Selection {
  /** Mount points, absolute and normal. */
  readonly filesystems: readonly string[]
  /** rsync patterns, each anchored at the root of the system. */
  readonly exclude: readonly string[]
}

/** rsync's own limit, less what it adds. */
const LONGEST_PATTERN = 4000

/**
 * Reads `grab_filesystems` and `grab_exclude` of an OS image. No file system named means `['/']`; a pattern starts at the
 * root, written or not, and is otherwise rsync's: `*` within a name, `**` across, a slash at the end for
 * directories alone. Throws Error naming the field and the entry.
 */
export function checkSelection(filesystems: readonly string[], exclude: readonly string[]): Selection {
  return {
    filesystems: [...new Set((filesystems.length === 0 ? ['/'] : filesystems).map(filesystem))],
    exclude: exclude.map(pattern)
  }
}

function filesystem(path: string): string {
  const refused = (why: string) => new Error(`grab_filesystems: ${JSON.stringify(path)} ${why}`)
  if (!path.startsWith('/')) throw refused('is no absolute path')
  if (path.split('/').some(part => part === '.' || part === '..')) throw refused('holds . or ..')
  // rsync on the node would expand them.
  if (/[*?[\]\\\u0000-\u001f\u007f]/.test(path)) throw refused('holds a wildcard or a control character')
  return posix.normalize(path).replace(/(?<=.)\/$/, '')
}

function pattern(text: string): string {
  const refused = (why: string) => new Error(`grab_exclude: ${JSON.stringify(text)} ${why}`)
  if (text.replaceAll('/', '') === '') throw refused('names no path below the root')
  if (text.includes('\0')) throw refused('holds a NUL character')
  if (Buffer.byteLength(text) > LONGEST_PATTERN) throw refused(`is longer than ${LONGEST_PATTERN} bytes`)
  return text.replace(/^\/*/, '/')
}

/** The pattern that matches a path and nothing else, whatever it holds; more may be put behind it. */
export const literal = (path: string) =>
  path.replace(/[*?[\\]/g, character => (character === '\\' ? '[\\\\]' : `[${character}]`))

/** The patterns of paths that are meant as they are. */
export const literals = (paths: readonly string[]) => paths.map(path => literal(posix.normalize(path)))

/** rsync's filter rules of a grab: directories of the running system come, empty. */
export const grabRules = (exclude: readonly string[], taken: readonly string[]) => [
  ...exclude.map(hide),
  ...volatile.map(path => hide(`${path}/*`)),
  ...lostAndFound(taken),
  ...identity.map(hide)
]

/** rsync's filter rules of a push. What is left out is neither sent nor deleted. */
export const pushRules = (exclude: readonly string[], taken: readonly string[]) => [
  ...[...exclude, ...volatile].map(hide),
  ...lostAndFound(taken),
  ...[...identity, ...keptByPush].map(hide),
  ...neverDeleted.map(path => `P ${path}`)
]

const hide = (path: string) => `- ${path}`
const lostAndFound = (taken: readonly string[]) => taken.map(path => `- ${posix.join(path, 'lost+found')}`)
