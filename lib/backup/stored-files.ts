import { constants, type Dirent } from 'node:fs'
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../disk/directory.js'
import { isMissing } from '../disk/missing.js'
import { isLeftover } from '../disk/replace.js'
import { Archive } from './archive.js'
import { infoText } from './info.js'
import { isKept } from './state-names.js'

/** How many backups that starts made are kept. */
const MOST_KEPT = 3

/**
 * Adds regular files below a directory as `<as>/<path>`, in the order of their names. Files that are gone when they are
 * read are left out: who calls for this holds the directory, or does not mind. `wanted` is asked for the names at the top.
 */
export async function addFiles(
  archive: Archive,
  directory: string,
  as: string,
  wanted: (name: string) => boolean = () => true
): Promise<void> {
  const entries = await readdir(directory, { withFileTypes: true })
  for (const entry of entries.sort(byName).filter(({ name }) => wanted(name) && !isLeftover(name))) {
    const path = join(directory, entry.name)
    if (entry.isDirectory()) await addFiles(archive, path, `${as}/${entry.name}`)
    else if (entry.isFile()) await addFile(archive, path, `${as}/${entry.name}`)
  }
}

const byName = (a: Dirent, b: Dirent) => (a.name < b.name ? -1 : 1)

/** Adds a regular file; one that is missing is left out. */
export async function addFile(archive: Archive, path: string, as: string): Promise<void> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    error => {
      if (isMissing(error)) return undefined
      throw error
    }
  )
  try {
    const stat = await handle?.stat()
    if (!handle || !stat?.isFile()) return
    await archive.addOpen(as, handle, stat.size, { mode: stat.mode & 0o777, mtimeMs: stat.mtimeMs })
  } finally {
    await handle?.close()
  }
}

/**
 * Keeps a state that no daemon writes as a backup in its `backups` (0600), as `svcd backup` makes it but without the ini;
 * gives the file. The three newest are kept.
 */
export async function keepState(state: string, version: number, release: string): Promise<string> {
  const directory = join(state, 'backups')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const stamp = new Date().toISOString().replace(/[-:]|\.\d+/g, '')
  const file = join(directory, `${stamp}-version-${version}.tar`)
  const part = `${file}.part`
  const handle = await open(part, 'w', 0o600)
  try {
    const archive = new Archive(bytes => handle.writeFile(bytes))
    await archive.add('backup.json', infoText({ version, release, images: false }))
    await addFiles(archive, state, 'state', isKept)
    await archive.end()
    await handle.sync()
    await rename(part, file)
  } finally {
    await handle.close()
  }
  const kept = (await readdir(directory)).filter(name => name.endsWith('.tar')).sort()
  for (const name of kept.slice(0, -MOST_KEPT)) await rm(join(directory, name), { force: true })
  for (const name of await readdir(directory))
    if (name.endsWith('.part')) await rm(join(directory, name), { force: true })
  await syncDirectory(directory)
  return file
}
