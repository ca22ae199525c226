import { type FileHandle, open, realpath, stat } from 'node:fs/promises'
import { dirname, join, normalize, relative, sep } from 'node:path'
import type { Config } from '../config/types.js'
import { DIRECTORY, inDirectory, mountsBelow, type OpenDirectory } from '../disk/open-directory.js'

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
  /** As whom ssh runs, unless it is ordered by root; default svcd-ssh. The unit names the user, and never svcd. */
  readonly sshUser?: string | undefined
  /** The prefix of the services as which systemd runs ssh; undefined: ssh is a child of the helper. */
  readonly sshUnit?: string | undefined
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
  sshUser: process.env.SVCD_SSH_USER,
  sshUnit: process.env.SVCD_SSH_UNIT,
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
export async function imagesOf({ images, byRoot }: Places): Promise<string> {
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

const isWithin = (path: string, top: string) => path.startsWith(top === sep ? top : `${top}${sep}`)

/**
 * Does work in a directory at or below `[image] directory`; `parent` is relative. It is held open, so that what is done by
 * its `at` is done in it. Throws Error for a directory elsewhere.
 */
export async function inBase<T>(
  places: Places,
  parent: string,
  work: (base: OpenDirectory) => Promise<T>
): Promise<T> {
  const top = await imagesOf(places)
  const base = await realpath(join(top, parent))
  if (base !== top && !isWithin(base, top))
    throw new Error(`${join(places.images, parent)} leads out of [image] directory`)
  return inDirectory(top, relative(top, base), work)
}

/** The same in the directory of a tree, below `[image] directory` and with no link in its path. */
export async function inTree<T>(
  places: Places,
  tree: string,
  work: (tree: OpenDirectory) => Promise<T>
): Promise<T> {
  const top = await imagesOf(places)
  const refused = (cause?: unknown) =>
    new Error(`${tree} is no directory below [image] directory ${places.images}`, { cause })
  if (tree !== normalize(tree) || tree.endsWith(sep) || !isWithin(tree, top)) throw refused()
  let isOpen = false
  try {
    return await inDirectory(top, relative(top, tree), async directory => {
      isOpen = true
      return work(directory)
    })
  } catch (error) {
    throw isOpen ? error : refused(error)
  }
}

/** Throws Error where something is mounted in a tree: it may be any part of this machine. */
export async function checkUnmounted({ path, at }: OpenDirectory): Promise<void> {
  const real = await realpath(at())
  const mounted = (await mountsBelow(real)).find(point => point !== real)
  if (mounted !== undefined) throw new Error(`${path} cannot be copied: something is mounted at ${mounted}`)
}

/** Who gets what is made. */
export interface Owner {
  readonly uid: number
  readonly gid: number
}

/** Who owns the files directory: svcd. Throws Error where that is root, and svcd is not. */
export async function ownerOf(places: Pick<Places, 'files' | 'byRoot'>): Promise<Owner> {
  const directory = await open(places.files, DIRECTORY)
  try {
    return await ownerIn(places, directory)
  } finally {
    await directory.close()
  }
}

/** Files that are made for svcd must not become root's: svcd could put another directory there. */
async function ownerIn(
  { files, byRoot }: Pick<Places, 'files' | 'byRoot'>,
  directory: FileHandle
): Promise<Owner> {
  const { uid, gid } = await directory.stat()
  if (uid === 0 && !byRoot)
    throw new Error(`[paths] files ${files} belongs to root, not to svcd; type chown svcd ${files}`)
  return { uid, gid }
}

/**
 * Has a hidden file made in the files directory: `make` is given its path, which stays in that directory whatever is
 * renamed meanwhile, and who is to own it.
 */
export async function inFiles<T>(
  places: Places,
  name: string,
  make: (path: string, owner: Owner) => Promise<T>
): Promise<T> {
  checkHidden(name)
  const directory = await open(places.files, DIRECTORY)
  try {
    return await make(`/proc/self/fd/${directory.fd}/${name}`, await ownerIn(places, directory))
  } finally {
    await directory.close()
  }
}
