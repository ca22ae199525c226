import { constants } from 'node:fs'
import { type FileHandle, mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isLeftover, syncDirectory, unlessMissing } from '../disk/file.js'
import { DIRECTORY } from '../disk/open-directory.js'
import { trustedPath } from '../disk/trusted-path.js'
import { Archive } from './archive.js'
import { infoText } from './info.js'
import { isKept, isShared, isStored } from './state-names.js'

/** How many backups that starts made are kept. */
const MOST_KEPT = 3
// To open a pipe would wait for its writer.
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** Says of an entry below a directory, by its path from there, whether it is wanted; of a directory, whether it is entered. */
export type Wanted = (path: string, isDirectory: boolean) => boolean | Promise<boolean>

/**
 * Adds regular files below a directory as `<as>/<path>`, in the order of their names. A link to a file is followed only with
 * `follow`, as trustedPath does; a link to a directory never is. What is missing,
 * the directory too, is left out: who calls for this holds the directory, or does not mind.
 */
export async function addFiles(
  archive: Archive,
  directory: string,
  as: string,
  wanted: Wanted = () => true,
  follow = false
): Promise<void> {
  const top = await unlessMissing(trustedPath(directory), undefined)
  if (top === undefined) return
  // Held open on the way down: who owns a directory in it may put a link in its place meanwhile.
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

/** Files that grow, with the bytes that they had when they were opened: what comes later, a rotation too, is none of theirs. */
export class OpenFiles {
  readonly #files: { readonly name: string; readonly handle: FileHandle; readonly bytes: number }[] = []

  private constructor() {}

  /** Opens those in a directory whose names match. Throws the error of the operating system. */
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

  /** Adds them as `<as>/<name>`, but for those with these names. */
  async addTo(archive: Archive, as: string, without: ReadonlySet<string>): Promise<void> {
    for (const { name, handle, bytes } of this.#files)
      if (!without.has(name)) await archive.addOpen(`${as}/${name}`, handle, bytes)
  }

  async close(): Promise<void> {
    for (const { handle } of this.#files) await handle.close()
  }
}

/** Adds a regular file; one that is missing is left out. */
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

/** The same for a path that an admin gave: links of root and of this user are followed. Throws Error for others. */
export async function addNamedFile(archive: Archive, path: string, as: string): Promise<void> {
  const real = await unlessMissing(trustedPath(path), undefined)
  if (real !== undefined) await addFile(archive, real, as)
}

/**
 * Keeps a state that no daemon writes as a backup in its `backups` (0600), as `svcd backup` makes it but without the ini;
 * gives the file. The three newest are kept. `objects`: those that are in no files, with the paths that they would have.
 */
export async function keepState(
  state: string,
  version: number,
  release: string,
  objects?: Texts
): Promise<string> {
  const directory = join(state, 'backups')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  // Those of starts that were killed take the room that this one needs.
  for (const name of await readdir(directory))
    if (name.endsWith('.part')) await rm(join(directory, name), { force: true })
  const stamp = new Date().toISOString().replace(/[-:]|\.\d+/g, '')
  const file = join(directory, `${stamp}-version-${version}.tar`)
  const part = `${file}.part`
  const handle = await open(part, 'w', 0o600)
  try {
    const archive = new Archive(bytes => handle.writeFile(bytes))
    await archive.add('backup.json', infoText({ version, release, images: false }))
    const journals = await addTexts(archive, objects ?? [])
    const isElsewhere = (name: string) =>
      journals.has(name) || (objects !== undefined && (isStored(name) || name === 'jobs'))
    await addFiles(archive, state, 'state', path => isKept(topOf(path)) && !isElsewhere(topOf(path)))
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
export type Texts = Iterable<readonly [path: string, text: string]>

/**
 * Adds objects, journals and records of requests that are in no files; those of types that no svcd of this version makes are none of
 * ours. Gives the names of the journals.
 */
export async function addTexts(archive: Archive, texts: Texts): Promise<Set<string>> {
  const journals = new Set<string>()
  for (const [path, text] of texts) {
    if (!isShared(topOf(path))) continue
    if (!path.includes('/')) journals.add(path)
    await archive.add(`state/${path}`, text)
  }
  return journals
}

/** The first name of a path. */
export const topOf = (path: string) => path.split('/', 1)[0] ?? ''

/** How the system's tar keeps all that a file system tells of a file. */
export const treeOptions = [
  '--format=posix',
  '--numeric-owner',
  '--acls',
  '--xattrs',
  '--xattrs-include=*',
  '--sparse'
]
