import { posix } from 'node:path'
import { identity, keptByPush, neverDeleted, volatile } from './exclusions.js'

/** rsync's own limit, less what it adds. */
const LONGEST_PATTERN = 4000

/**
 * Reads `grab_filesystems` and `grab_exclude` of an OS image: returns normal mount points (default: `/`) and
 * patterns of rsync that begin with a slash. Throws Error naming the field and the entry.
 */
export function checkSelection(filesystems: readonly string[], exclude: readonly string[]) {
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

/** File systems of a node that are transferred, and mount points below them that are not. */
interface FilesystemChoice {
  /** Mount points, parents first. */
  readonly taken: readonly string[]
  /** Named, but no mount points on this node: parts of file systems that are taken. */
  readonly partsOfTaken: readonly string[]
  /** Mount points that are left alone, with all they hold. */
  readonly left: readonly string[]
}

/** Left out anyway (exclusions.ts): a node may have hundreds of mounts there. */
const PSEUDO = ['/proc', '/sys', '/dev', '/run']

/**
 * Chooses among a node's mount points by `filesystems`, as `checkSelection` returns them. Throws Error for a
 * path that is neither a mount point nor a part of a chosen one, as it could be a link to somewhere else.
 */
export function chooseFilesystems(
  node: string,
  filesystems: readonly string[],
  mounted: readonly string[]
): FilesystemChoice {
  const there = new Set(['/', ...mounted])
  const taken = filesystems.filter(path => there.has(path)).sort()
  const missing = filesystems.filter(path => !there.has(path))
  for (const path of missing)
    if (!within(path, taken))
      throw new Error(
        `grab_filesystems: no file system is mounted at ${JSON.stringify(path)} on node ${node}`
      )
  const left = mounted.filter(
    path => path !== '/' && !taken.includes(path) && within(path, taken) && !within(path, PSEUDO)
  )
  return { taken, partsOfTaken: missing, left }
}

const within = (path: string, parents: readonly string[]) =>
  parents.some(parent => path === parent || path.startsWith(parent === '/' ? '/' : `${parent}/`))

/** Returns the pattern that matches only this path; more may follow it. */
const literal = (path: string) =>
  path.replace(/[*?[\\]/g, character => (character === '\\' ? '[\\\\]' : `[${character}]`))
const hide = (pattern: string) => `- ${pattern}`
const hidePath = (path: string) => hide(literal(posix.normalize(path)))
const lostAndFound = (taken: readonly string[]) => taken.map(path => hide(posix.join(path, 'lost+found')))

/**
 * Returns rsync's filter rules of a grab without the patterns `exclude` and the paths `own`. Volatile
 * directories and mount points that are left alone are copied empty.
 */
export const grabRules = (
  exclude: readonly string[],
  own: readonly string[],
  { taken, left }: FilesystemChoice
) => [
  ...own.map(hidePath),
  ...exclude.map(hide),
  ...volatile.map(path => hide(`${path}/*`)),
  ...lostAndFound(taken),
  ...identity.map(hide),
  ...taken.filter(path => path !== '/').map(path => `+ ${literal(path)}/`),
  ...left.map(literal).flatMap(path => [`+ ${path}/`, hide(`${path}/*`), hide(path)])
]

/**
 * Returns rsync's filter rules of a push without the patterns `exclude` and the paths `own`. Excluded paths
 * are neither sent nor deleted; mount points that are left alone keep their modes too.
 */
export const pushRules = (
  exclude: readonly string[],
  own: readonly string[],
  { taken, left }: FilesystemChoice
) => [
  ...left.map(path => hide(literal(path))),
  ...own.map(hidePath),
  ...[...exclude, ...volatile].map(hide),
  ...lostAndFound(taken),
  ...[...identity, ...keptByPush].map(hide),
  ...neverDeleted.map(path => `P ${path}`)
]
