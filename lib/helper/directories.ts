import { type FileHandle, open, realpath, stat } from 'node:fs/promises'
import { dirname, join, normalize, relative, sep } from 'node:path'
import type { Config } from '../config/types.js'
import { withOpen } from '../disk/file.js'
import { DIRECTORY, inDirectory, mountsBelow, type OpenDirectory } from '../disk/open-directory.js'

/** The directories and settings of the helper. They come from the ini, never with a command. */
export interface HelperSettings {
  /** `[image] directory`. */
  readonly images: string
  /** `[paths] files`. */
  readonly files: string
  /** `[image] containers_storage`; absent or '': none. */
  readonly storage?: string
  /** `[paths] state`, which holds the ssh key and the known hosts. */
  readonly state: string
  readonly sshKey: string
  readonly sshPort: number
  /** The user of ssh, from the unit, unless root gives the orders; default svcd-ssh, never svcd. */
  readonly sshUser?: string | undefined
  /** Name prefix of the transient units that run ssh; undefined: ssh is a child of the helper. */
  readonly sshUnit?: string | undefined
  /** Whether root gives the commands. Else images must belong to root, and files to the owner of `files`. */
  readonly byRoot: boolean
  /** The systemd units that may be controlled. */
  readonly units: readonly string[]
}

/** Reads the settings of the helper from a configuration. */
export const helperSettingsOf = (
  { image, paths, ssh }: Pick<Config, 'image' | 'paths' | 'ssh'>,
  byRoot: boolean,
  units: readonly string[] = []
): HelperSettings => ({
  images: image.directory,
  files: paths.files,
  storage: image.containers_storage,
  state: paths.state,
  sshKey: ssh.key,
  sshPort: ssh.port,
  sshUser: process.env.SVCD_SSH_USER,
  sshUnit: process.env.SVCD_SSH_UNIT,
  byRoot,
  units
})

/** Hidden names of unfinished files and trees (image/notes.ts). */
const hidden = /^\.svcd-[0-9a-f]{16}(\.[a-z]+)?$/

/** Throws Error unless a name is hidden. */
export function checkHidden(name: string): string {
  if (!hidden.test(name))
    throw new Error(`${JSON.stringify(name)} is no name of something that is being made`)
  return name
}

/** Whether a name is one component of a path. */
export const isComponent = (name: unknown): boolean =>
  typeof name === 'string' && !['', '.', '..'].includes(name) && !/[/\0]/.test(name)

/** Throws Error unless a name is one component of a path. */
export function checkComponent(name: string): string {
  if (!isComponent(name)) throw new Error(`${JSON.stringify(name)} is no name of a directory`)
  return name
}

/** Resolves `[image] directory`. Throws Error if others than root could replace it. */
export const imagesOf = ({ images, byRoot }: HelperSettings): Promise<string> =>
  byRoot ? realpath(images) : resolveRoots('[image] directory', images)

/** Resolves the directory of a key of the ini. Throws Error if others than root could replace it. */
export async function resolveRoots(key: string, directory: string): Promise<string> {
  const top = await realpath(directory)
  for (let path = top; ; path = dirname(path)) {
    const { uid, mode } = await stat(path)
    const isOthers = (mode & 0o022) !== 0 && (path === top || (mode & 0o1000) === 0)
    if (uid !== 0 || isOthers)
      throw new Error(
        `${key} ${directory} is not safe: others than root may rename what is in ${path}; type ` +
          (path === top
            ? `chown root ${path} && chmod go-w ${path}`
            : `chown root ${path} && chmod +t ${path}`)
      )
    if (path === dirname(path)) return top
  }
}

const isWithin = (path: string, top: string) => path.startsWith(top === sep ? top : `${top}${sep}`)

/** Runs work in a directory at or below `[image] directory`. Throws Error for a directory outside. */
export async function inImageDirectory<T>(
  places: HelperSettings,
  parent: string,
  work: (base: OpenDirectory) => Promise<T>
): Promise<T> {
  const top = await imagesOf(places)
  const base = await realpath(join(top, parent))
  if (base !== top && !isWithin(base, top))
    throw new Error(`${join(places.images, parent)} leads out of [image] directory`)
  return inDirectory(top, relative(top, base), work)
}

/** Opens a tree below `[image] directory`, without links in its path, and runs work in it. */
export async function inTree<T>(
  places: HelperSettings,
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

/** Throws Error if something is mounted in a tree: it may be any part of this machine. */
export async function checkUnmounted({ path, at }: OpenDirectory): Promise<void> {
  const real = await realpath(at())
  const mounted = (await mountsBelow(real)).find(point => point !== real)
  if (mounted !== undefined) throw new Error(`${path} cannot be copied: something is mounted at ${mounted}`)
}

export interface Owner {
  readonly uid: number
  readonly gid: number
}

/** Returns the owner of the files directory, svcd. Throws Error if that is root and svcd is not. */
export const ownerOf = (places: HelperSettings): Promise<Owner> =>
  withOpen(open(places.files, DIRECTORY), directory => ownerIn(places, directory))

/** Files for svcd must not belong to root, since svcd could replace their directory. */
async function ownerIn({ files, byRoot }: HelperSettings, directory: FileHandle): Promise<Owner> {
  const { uid, gid } = await directory.stat()
  if (uid === 0 && !byRoot)
    throw new Error(`[paths] files ${files} belongs to root, not to svcd; type chown svcd ${files}`)
  return { uid, gid }
}

/** Creates a hidden file in the files directory. `make` gets a path that survives renames, and the owner. */
export async function createInFiles<T>(
  places: HelperSettings,
  name: string,
  make: (path: string, owner: Owner) => Promise<T>
): Promise<T> {
  checkHidden(name)
  return withOpen(open(places.files, DIRECTORY), async directory =>
    make(`/proc/self/fd/${directory.fd}/${name}`, await ownerIn(places, directory))
  )
}

/** Returns the wrapper that gives up root. Group root, where /dev/kvm has it, would give too much. */
export function wordsAs({ uid, gid }: Owner, kvm?: number): string[] {
  const groups = kvm ? `--groups=${kvm}` : '--clear-groups'
  return ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, groups, '--inh-caps=-all', '--no-new-privs', '--']
}
