import { lstat, open, realpath, stat } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'
import type { Config } from '../config/types.js'
import { DIRECTORY } from '../disk/openat.js'

/** The directories that root's work is done in. They come from the ini, never with a command. */
export interface Places {
  /** `[image] directory`. */
  readonly images: string
  /** `[paths] files`. */
  readonly files: string
  /** `[paths] state`: the ssh key and the known hosts lie there. */
  readonly state: string
  readonly sshKey: string
  readonly sshPort: number
  /**
   * Whether who gives the commands is root anyway. Otherwise the image directory must be root's, and what is made for the
   * others becomes the files directory's owner's.
   */
  readonly byRoot: boolean
  /** The servers that may be started, stopped, restarted and reloaded. */
  readonly units: readonly string[]
}

/** The places of a configuration. */
export const placesOf = (
  { image, paths, ssh }: Pick<Config, 'image' | 'paths' | 'ssh'>,
  byRoot: boolean,
  units: readonly string[] = []
): Places => ({
  images: image.directory,
  files: paths.files,
  state: paths.state,
  sshKey: ssh.key,
  sshPort: ssh.port,
  byRoot,
  units
})

/** The hidden names of what is being made (image/intents.ts). */
const hidden = /^\.svcd-[0-9a-f]{16}(\.[a-z]+)?$/

/** Throws Error unless a name is hidden. */
export function checkHidden(name: string): string {
  if (!hidden.test(name))
    throw new Error(`${JSON.stringify(name)} is no name of something that is being made`)
  return name
}

/** Throws Error unless a name is one component of a path. */
export function checkPlain(name: string): string {
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name))
    throw new Error(`${JSON.stringify(name)} is no name of a directory`)
  return name
}

/** `[image] directory` with no link left. Throws Error where others than root could put another in its place. */
async function imagesOf({ images, byRoot }: Places): Promise<string> {
  const top = await realpath(images)
  if (byRoot) return top
  for (let path = top; ; path = dirname(path)) {
    const { uid, mode } = await stat(path)
    const isOthers = (mode & 0o022) !== 0 && (path === top || (mode & 0o1000) === 0)
    if (uid !== 0 || isOthers)
      throw new Error(
        `[image] directory ${images} is not safe: others than root may rename what is in ${path}; type ` +
          (path === top
            ? `chown root ${path} && chmod go-w ${path}`
            : `chown root ${path} && chmod +t ${path}`)
      )
    if (path === dirname(path)) return top
  }
}

/** A directory at or below `[image] directory`, with no link left; `parent` is relative. Throws Error for another. */
export async function baseOf(places: Places, parent: string): Promise<string> {
  const top = await imagesOf(places)
  const base = await realpath(join(top, parent))
  if (base === top || base.startsWith(top === sep ? top : `${top}${sep}`)) return base
  throw new Error(`${join(places.images, parent)} leads out of [image] directory`)
}

/** Throws Error unless `tree` is a directory below `[image] directory`, with no link in its path. Gives it. */
export async function checkTree(places: Places, tree: string): Promise<string> {
  const top = await imagesOf(places)
  if (tree !== (await realpath(tree)) || !tree.startsWith(top === sep ? top : `${top}${sep}`))
    throw new Error(`${tree} is no directory below [image] directory ${places.images}`)
  if (!(await lstat(tree)).isDirectory()) throw new Error(`${tree} is no directory`)
  return tree
}

/** Who gets what is made. */
export interface Owner {
  readonly uid: number
  readonly gid: number
}

/** Who owns the files directory: svcd. */
export async function ownerOf({ files }: Pick<Places, 'files'>): Promise<Owner> {
  const directory = await open(files, DIRECTORY)
  try {
    const { uid, gid } = await directory.stat()
    return { uid, gid }
  } finally {
    await directory.close()
  }
}

/**
 * Has a hidden file made in the files directory: `make` is given its path, which stays in that directory whatever is
 * renamed meanwhile, and who is to own it.
 */
export async function inFiles<T>(
  { files }: Places,
  name: string,
  make: (path: string, owner: Owner) => Promise<T>
): Promise<T> {
  checkHidden(name)
  const directory = await open(files, DIRECTORY)
  try {
    const { uid, gid } = await directory.stat()
    return await make(`/proc/self/fd/${directory.fd}/${name}`, { uid, gid })
  } finally {
    await directory.close()
  }
}
