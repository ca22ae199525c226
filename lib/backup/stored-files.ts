import { constants } from 'node:fs'
import { type FileHandle, mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isLeftover, syncDirectory, unlessMissing } from '../disk/file.js'
import { DIRECTORY, trustedPath } from '../disk/open-directory.js'
import { Archive, INFO, infoText } from './archive.js'
import { isBackedUp, isSharedDirectory, isStored } from './state-names.js'

/** The number of kept backups that starts made. */
const MOST_KEPT = 3
// O_NONBLOCK: opening a pipe would wait for its writer.
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** Selects an entry by its path below a directory; for a directory, whether to enter it. */
export type EntryFilter = (path: string, isDirectory: boolean) => boolean | Promise<boolean>

/**
 * Adds regular files below a directory as `<as>/<path>`, ordered by name. Follows a link to a file only with
 * `follow`, as trustedPath does, and never one to a directory. The directory and files may be missing.
 */
export async function addFiles(
  archive: Archive,
  directory: string,
  as: string,
  wanted: EntryFilter = () => true,
  follow = false
): Promise<void> {
  const top = await unlessMissing(trustedPath(directory), undefined)
  if (top === undefined) return
  // Held open on the way down: the owner of a directory may replace it with a link meanwhile.
  const addBelow = async (at: string, below: string): Promise<void> => {
    const held = await unlessMissing(open(at, DIRECTORY), undefined)
    if (!held) return
    try {
      const here = `/proc/self/fd/${held.fd}`
      const entries = await readdir(`${here}/`, { withFileTypes: true })
      for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const path = join(below, entry.name)
        const inner = `${here}/${entry.name}`
        if (isLeftover(entry.name) || !(await wanted(path, entry.isDirectory()))) continue
        if (entry.isDirectory()) await addBelow(inner, path)
        else if (entry.isSymbolicLink() && follow)
          await addNamedFile(archive, join(top, path), `${as}/${path}`)
        else if (entry.isFile()) await addFile(archive, inner, `${as}/${path}`)
      }
    } finally {
      await held.close()
    }
  }
  await addBelow(top, '')
}

/** Growing files as of their opening: later bytes, and rotated files, are left out. */
export class OpenFiles {
  readonly #files: { readonly name: string; readonly handle: FileHandle; readonly bytes: number }[] = []

  private constructor() {}

  /** Opens the matching files of a directory. Throws the system's error. */
  static async open(directory: string, names: RegExp): Promise<OpenFiles> {
    const opened = new OpenFiles()
    for (const name of (await readdir(directory)).filter(name => names.test(name)).sort()) {
      const handle = await unlessMissing(open(join(directory, name), READ), undefined)
      const stat = await handle?.stat()
      if (handle && stat?.isFile()) opened.#files.push({ name, handle, bytes: stat.size })
      else await handle?.close()
    }
    return opened
  }

  /** Adds them as `<as>/<name>`. */
  async addTo(archive: Archive, as: string): Promise<void> {
    for (const { name, handle, bytes } of this.#files) await archive.addOpen(`${as}/${name}`, handle, bytes)
  }

  async close(): Promise<void> {
    for (const { handle } of this.#files) await handle.close()
  }
}

/** Adds a regular file, unless it is missing. */
async function addFile(archive: Archive, path: string, as: string): Promise<void> {
  const handle = await unlessMissing(open(path, READ), undefined)
  try {
    const stat = await handle?.stat()
    if (!handle || !stat?.isFile()) return
    await archive.addOpen(as, handle, stat.size, { mode: stat.mode & 0o777, mtimeMs: stat.mtimeMs })
  } finally {
    await handle?.close()
  }
}

/** `addFile` for an admin's path: follows links of root and this user. Throws Error for others. */
export async function addNamedFile(archive: Archive, path: string, as: string): Promise<void> {
  const real = await unlessMissing(trustedPath(path), undefined)
  if (real !== undefined) await addFile(archive, real, as)
}

/**
 * Backs up a state that no daemon writes to its `backups` (0600), like `svcd backup` without the ini; returns
 * the file. Keeps the three newest. `objects`: those outside of files, with their paths as files.
 */
export async function backUpState(
  state: string,
  version: number,
  release: string,
  objects?: Texts
): Promise<string> {
  const directory = join(state, 'backups')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  // Partial files of killed starts take up the room needed here.
  for (const name of await readdir(directory))
    if (name.endsWith('.part')) await rm(join(directory, name), { force: true })
  const stamp = new Date().toISOString().replace(/[-:]|\.\d+/g, '')
  const file = join(directory, `${stamp}-version-${version}.tar`)
  const part = `${file}.part`
  const handle = await open(part, 'w', 0o600)
  try {
    const archive = new Archive(bytes => handle.writeFile(bytes))
    await archive.add(INFO, infoText({ version, release, images: false }))
    const journals = await addTexts(archive, objects ?? [])
    const isElsewhere = (name: string) =>
      journals.has(name) || (objects !== undefined && (isStored(name) || isSharedDirectory(name)))
    await addFiles(archive, state, 'state', path => isBackedUp(topOf(path)) && !isElsewhere(topOf(path)))
    await archive.end()
    await handle.sync()
    await rename(part, file)
  } catch (error) {
    await rm(part, { force: true })
    throw error
  } finally {
    await handle.close()
  }
  const kept = (await readdir(directory)).filter(name => name.endsWith('.tar')).sort()
  for (const name of kept.slice(0, -MOST_KEPT)) await rm(join(directory, name), { force: true })
  await syncDirectory(directory)
  return file
}

/** Texts with their paths below the state directory. */
type Texts = Iterable<readonly [path: string, text: string]>

/** Adds objects, journals and request records of known types. Returns the names of the journals. */
export async function addTexts(archive: Archive, texts: Texts): Promise<Set<string>> {
  const journals = new Set<string>()
  for (const [path, text] of texts) {
    if (!isBackedUp(topOf(path))) continue
    if (!path.includes('/')) journals.add(path)
    await archive.add(`state/${path}`, text)
  }
  return journals
}

/** The first component of a path. */
export const topOf = (path: string) => path.split('/', 1)[0] ?? ''

/** Options of the system's tar that keep all attributes of files. */
export const treeOptions = [
  '--format=posix',
  '--numeric-owner',
  '--acls',
  '--xattrs',
  '--xattrs-include=*',
  '--sparse'
]
