import { literal } from './selection.js'

/**
 * Mount points of a node, from its /proc/self/mountinfo (fifth field; blanks, tabs, newlines and backslashes are
 * written there as three octal digits).
 */
export function mountPoints(mountinfo: string): string[] {
  // A shell that greets writes lines of its own before.
  const points = mountinfo.split('\n').flatMap(line => /^\d+ \d+ \d+:\d+ \S+ (\/\S*) /.exec(line)?.[1] ?? [])
  return [...new Set(points.map(decode))]
}

const decode = (text: string) =>
  text.replace(/\\([0-7]{3})/g, (_, digits) => String.fromCharCode(Number.parseInt(digits, 8)))

/** Which file systems of a node are carried over, and which mount points below them are not. */
export interface Chosen {
  /** Mount points, parents first. */
  readonly taken: readonly string[]
  /** Named, but not mounted on this node: a part of a file system that is taken. */
  readonly covered: readonly string[]
  /** Mount points that are left alone, with all they hold. */
  readonly left: readonly string[]
}

/** What the exclusions cover anyway: a node may have hundreds of mounts there. */
const PSEUDO = ['/proc', '/sys', '/dev', '/run']

/**
 * Chooses by `filesystems` (as `checkSelection` gives them) among the mount points of a node. Throws Error for one
 * that is neither mounted there nor a part of one that is taken: it could be a link into somewhere else.
 */
export function chooseFilesystems(
  node: string,
  filesystems: readonly string[],
  mounted: readonly string[]
): Chosen {
  const there = new Set(['/', ...mounted])
  const taken = filesystems.filter(path => there.has(path)).sort()
  const missing = filesystems.filter(path => !there.has(path))
  for (const path of missing)
    if (!taken.some(parent => within(path, parent)))
      throw new Error(
        `grab_filesystems: no file system is mounted at ${JSON.stringify(path)} on node ${node}`
      )
  const inside = (path: string, parents: readonly string[]) => parents.some(parent => within(path, parent))
  const left = mounted.filter(
    path => path !== '/' && !taken.includes(path) && inside(path, taken) && !inside(path, PSEUDO)
  )
  return { taken, covered: missing, left }
}

const within = (path: string, parent: string) =>
  path === parent || path.startsWith(parent === '/' ? '/' : `${parent}/`)

/** rsync's filter rules that keep a grab out of the mount points left alone: the directories come, empty. */
export const grabMountRules = ({ taken, left }: Chosen) => [
  ...taken.filter(path => path !== '/').map(path => `+ ${literal(path)}/`),
  ...left.flatMap(path => [`+ ${literal(path)}/`, `- ${literal(path)}/*`, `- ${literal(path)}`])
]

/** rsync's filter rules that keep a push out of the mount points left alone, and their own modes as they are. */
export const pushMountRules = ({ left }: Chosen) => left.map(path => `- ${literal(path)}`)
