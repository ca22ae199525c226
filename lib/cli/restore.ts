import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmod, lchown, lstat, mkdir, readdir, rename, rm, rmdir, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { extract, list } from 'tar'
import { CHECKSUM, verifyArchive } from '../backup/archive.js'
import { INFO, infoOf } from '../backup/info.js'
import { steps } from '../backup/interrupted.js'
import { isKept, isMade, isStored } from '../backup/state-names.js'
import { treeOptions } from '../backup/stored-files.js'
import { loadConfig } from '../config/load.js'
import type { Config } from '../config/types.js'
import { syncDirectory } from '../disk/directory.js'
import { exists, unlessMissing } from '../disk/missing.js'
import { inDirectory, type OpenDirectory } from '../disk/open-directory.js'
import { removeTree } from '../disk/remove-tree.js'
import { trustedPath } from '../disk/trusted-path.js'
import { imagesOf, placesOf } from '../helper/places.js'
import { migrations } from '../model/migrations.js'
import { holdDirectory } from '../store/files/lock.js'
import { version } from '../version.js'
import { refuseUnreadable } from './archive-file.js'
import { iniName } from './config-files.js'
import { type Entry, type Owner, placeConfig } from './restore-config.js'
import { type UnitUser, unitUser } from './unit-user.js'
import { UsageError } from './usage.js'

/** What `svcd restore` was told. */
export interface RestoreOptions {
  readonly file: string
  /** Where the ini belongs. */
  readonly ini: string
  readonly set: readonly string[]
  readonly force: boolean
}

const program = promisify(execFile)

const mostConfigBytes = 64 * 1024 * 1024

/**
 * Puts a backup in its place while svcd is stopped; gives what was done. Nothing is changed before the backup has been read
 * to its end. What it replaces is kept: files of the configuration as `….before-restore~`, the state in its own directory
 * `replaced`. Broken off, it leaves a state on which no daemon starts until it is run again (rules 11.13).
 * @throws Error for a damaged backup, one of a newer svcd, a state that is there or in use
 */
export async function restore(options: RestoreOptions): Promise<string> {
  const { file } = options
  if (file === '-') throw new UsageError('a backup is read twice: give a file')
  await refuseUnreadable(file)
  await verifyArchive(file)
  const { found, holdsState } = await configEntries(file)
  const info = infoIn(file, found)
  if (!holdsState)
    throw new Error(
      `${file} holds no state: it was made of a state directory on which no svcd had been started; nothing is restored`
    )
  if (info.images && process.getuid?.() !== 0)
    throw new UsageError(`${file} holds the directories of images: to restore them needs root`)
  const config = await newConfig(found.get(iniName)?.bytes, options)
  const { state } = config.paths
  const owner = await ownerOf(config)
  await makeState(state, owner)
  return inDirectory(await trustedPath(state), '', async ({ at }) => {
    const held = { path: state, at }
    const release = await holdDirectory(at())
    if (!release)
      throw new Error(`svcd is running on ${state}: stop it first (systemctl stop svcd); nothing is changed`)
    try {
      return await restoreTo(held, { found, images: info.images, config, owner, options })
    } finally {
      await release()
    }
  })
}

/** What a backup holds, and where it goes. */
interface Job {
  readonly found: ReadonlyMap<string, Entry>
  /** Whether the images are in it. */
  readonly images: boolean
  readonly config: Config
  readonly owner: UnitUser | undefined
  readonly options: RestoreOptions
}

/** Restores to a state directory that is held and locked. */
async function restoreTo(state: OpenDirectory, job: Job): Promise<string> {
  const { found, images, config, owner, options } = job
  const { file, ini, force } = options
  const stamp = new Date().toISOString().replace(/[-:]/g, '')
  const aside = join(state.path, 'replaced', stamp)
  if (await exists(state.at('replaced'))) await inOwn(state, 'replaced', async () => {})
  const toEtcd = await toEtcdOf(job)
  if (await finish(state, stamp))
    return (
      `the restore that was interrupted is finished: ${state.path} is whole` +
      `${toEtcd === '' ? '' : `; next: ${toEtcd}svcd check, then start svcd`}\n`
    )
  const old = (await readdir(state.at())).filter(isMade)
  if (old.length > 0 && !force)
    throw new Error(
      `${state.path} holds a state already: with --force it is kept aside, in ${aside}; nothing is changed`
    )
  const part = state.at(steps.part)
  await removeTree(part, join(state.path, steps.part))
  try {
    await mkdir(part, { mode: 0o700 })
    await inOwn(state, steps.part, place => extractState(file, place.at(), owner))
    if (images) await unpackImages(file, config, owner)
  } catch (error) {
    // Nothing is changed yet: the daemon may start again.
    await removeTree(part).catch(() => {})
    throw error
  }
  if (images) await placeImages(config, owner, state, stamp)
  const replaced = await placeConfig(found, config, ini, owner)
  await program('sync', ['--file-system', state.at()])
  await rename(part, state.at(steps.ready))
  await syncDirectory(state.at())
  await finish(state, stamp)
  const kept = [...(old.length > 0 ? [aside] : []), ...replaced].map(path => `kept aside: ${path}\n`)
  return `${kept.join('')}restored: ${ini}, ${state.path}; next: ${toEtcd}svcd check, then start svcd (systemctl start svcd)\n`
}

/** What has to be done before the start where the objects are in etcd: what etcd holds is not replaced by this, an admin says so. */
async function toEtcdOf({ config: { store }, owner }: Job): Promise<string> {
  if (store.medium !== 'etcd') return ''
  const { removalFrom } = await import('../store/etcd/open.js')
  return (
    `stop svcd on all controllers, then ${removalFrom(store)}, then ` +
    `${owner ? `runuser -u ${owner.user} -- ` : ''}svcd store copy files etcd, then `
  )
}

/** Moves a restored state that is whole into its place; true where there was one. Once begun, it can only go forward. */
async function finish(state: OpenDirectory, stamp: string): Promise<boolean> {
  const { ready, clear } = steps
  if (await exists(state.at(ready))) {
    await inOwn(state, ready, async () => {})
    const old = (await readdir(state.at())).filter(isMade)
    if (old.length > 0)
      await inAside(state, stamp, async aside => {
        for (const name of old) await rename(state.at(name), aside.at(name))
      })
    await syncDirectory(state.at())
    await rename(state.at(ready), state.at(clear))
  }
  if (!(await exists(state.at(clear)))) return false
  await inOwn(state, clear, async from => {
    for (const name of await readdir(from.at())) await rename(from.at(name), state.at(name))
  })
  await syncDirectory(state.at())
  await rmdir(state.at(clear))
  await syncDirectory(state.at())
  return true
}

/**
 * Does work in a directory below another one. User svcd can make any name in the state: throws Error for a link, for what
 * is no directory, and for a directory of another user than this one.
 */
async function inOwn<T>(
  parent: OpenDirectory,
  name: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> {
  const path = join(parent.path, name)
  if (!(await lstat(parent.at(name))).isDirectory())
    throw new Error(`${path} is no directory: remove it, and restore again`)
  return inDirectory(parent.at(), name, async ({ at }) => {
    const { uid } = await stat(at())
    if (uid !== process.getuid?.())
      throw new Error(
        `${path} belongs to user ${uid}, who can exchange what is in it: restore as that user, or move it away`
      )
    return work({ path, at })
  })
}

/** Does work in the directory where what this restore replaces is kept; makes it where it is not there. */
async function inAside<T>(
  state: OpenDirectory,
  stamp: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> {
  await mkdir(state.at('replaced'), { recursive: true, mode: 0o700 })
  return inOwn(state, 'replaced', async replaced => {
    await mkdir(replaced.at(stamp), { recursive: true, mode: 0o700 })
    return inOwn(replaced, stamp, work)
  })
}

/** Whether an entry of this name may stand in a backup: what leads elsewhere may not. */
const isKnown = (path: string) =>
  path === INFO ||
  path === CHECKSUM ||
  (/^(config|state|files|images)\//.test(path) && !/(^|\/)\.\.(\/|$)/.test(path))

/** What a backup holds beside state and images: small files; and whether it holds a state. */
async function configEntries(file: string): Promise<{ found: Map<string, Entry>; holdsState: boolean }> {
  const found = new Map<string, Entry>()
  let left = mostConfigBytes
  let foreign: string | undefined
  let holdsState = false
  await list({
    file,
    strict: true,
    onReadEntry: entry => {
      const { path, mode = 0o600, type, size = 0 } = entry
      const [top, name = ''] = path.split('/')
      if (!isKnown(path) || (top === 'state' && !(type === 'File' && isKept(name)))) foreign ??= path
      if (top === 'state' && isStored(name)) holdsState = true
      if (type !== 'File' || (path !== INFO && !path.startsWith('config/'))) return entry.resume()
      left -= size
      const chunks: Buffer[] = []
      entry.on('data', (chunk: Buffer) => left >= 0 && chunks.push(chunk))
      entry.on('end', () => found.set(path, { bytes: Buffer.concat(chunks), mode: mode & 0o777 }))
    }
  })
  if (foreign !== undefined)
    throw new Error(`${file}: ${foreign} does not belong into a backup; nothing is restored`)
  if (left < 0) throw new Error(`${file}: its configuration is larger than 64 MiB; nothing is restored`)
  return { found, holdsState }
}

function infoIn(file: string, found: ReadonlyMap<string, Entry>) {
  try {
    const info = infoOf(String(found.get(INFO)?.bytes))
    const known = migrations('').length
    if (info.version > known)
      throw new Error(
        `its state has layout version ${info.version}, made by svcd ${info.release}, and svcd ${version.service} knows ` +
          `versions up to ${known}: install svcd ${info.release} or a later one`
      )
    return info
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}; nothing is restored`)
  }
}

/** The configuration as it will be: that of the backup, read where it will stand; without one in it, that which is there. */
async function newConfig(text: Buffer | undefined, { ini, set }: RestoreOptions): Promise<Config> {
  if (!text) return loadConfig(ini, set)
  await mkdir(dirname(ini), { recursive: true })
  const trial = join(dirname(ini), `.${basename(ini)}.${randomBytes(6).toString('hex')}`)
  await writeFile(trial, text, { mode: 0o600, flag: 'wx' })
  try {
    return { ...loadConfig(trial, set), file: ini }
  } finally {
    await rm(trial, { force: true })
  }
}

/** The user as whom the unit runs svcd, where root restores for it. */
async function ownerOf(config: Config): Promise<UnitUser | undefined> {
  if (process.getuid?.() !== 0) return undefined
  return unitUser(config.file)
}

async function makeState(state: string, owner: Owner | undefined): Promise<void> {
  if (await exists(state)) return
  await mkdir(state, { recursive: true, mode: 0o700 })
  if (!owner) return
  // As the package makes it: in a sticky directory of root's, svcd cannot put something else in the place of the images.
  await lchown(state, 0, owner.gid)
  await chmod(state, 0o1771)
}

/** Unpacks the state: files (0600) in directories (0700), all of them of the same user. The directory itself stays ours. */
async function extractState(file: string, part: string, owner: Owner | undefined): Promise<void> {
  await extract({
    file,
    cwd: part,
    strip: 1,
    strict: true,
    preserveOwner: false,
    filter: path => path.startsWith('state/')
  })
  const all = await readdir(part, { recursive: true, withFileTypes: true })
  for (const entry of all) {
    const path = join(entry.parentPath, entry.name)
    await chmod(path, entry.isDirectory() ? 0o700 : 0o600)
    if (owner) await lchown(path, owner.uid, owner.gid)
  }
}

const partOfImages = ({ image }: Config) => join(image.directory, '.restore.part')

/** Unpacks the packed files and the directories of the images, beside these. */
async function unpackImages(file: string, config: Config, owner: Owner | undefined): Promise<void> {
  await mkdir(config.image.directory, { recursive: true, mode: 0o755 })
  await imagesOf(placesOf(config, owner === undefined))
  const part = partOfImages(config)
  await removeTree(part)
  await mkdir(part, { mode: 0o700 })
  try {
    await program('tar', [
      ...['--extract', '--same-owner', '--preserve-permissions', ...treeOptions.slice(1, -1)],
      ...[`--file=${file}`, `--directory=${part}`],
      // Anchored: a file of an image may have any of these names.
      ...['--anchored', '--no-wildcards', `--exclude=${CHECKSUM}`, '--exclude=state', '--exclude=config']
    ])
  } catch (error) {
    await removeTree(part).catch(() => {})
    throw error
  }
}

/** Gives them their places; images that are there by these names are kept aside. */
async function placeImages(
  config: Config,
  owner: Owner | undefined,
  state: OpenDirectory,
  stamp: string
): Promise<void> {
  const { directory } = config.image
  const { files } = config.paths
  const part = partOfImages(config)
  await makeFiles(files, owner)
  for (const name of await unlessMissing(readdir(join(part, 'images')), []))
    await placeImage(join(part, 'images', name), join(directory, name), state, stamp)
  const packed = join(part, 'files')
  if (await exists(packed)) await placeFiles(packed, files, owner)
  await removeTree(part)
  await program('sync', ['--file-system', directory, files])
}

/** Makes the directory of the packed files where there is none. */
async function makeFiles(files: string, owner: Owner | undefined): Promise<void> {
  if (await exists(files)) return
  await mkdir(dirname(files), { recursive: true, mode: 0o755 })
  await mkdir(files, { mode: 0o700 })
  if (owner) await lchown(files, owner.uid, owner.gid)
}

/** Moves packed files to their directory, with their modes. It is svcd's: nothing in it is opened, and no link followed. */
async function placeFiles(packed: string, files: string, owner: Owner | undefined): Promise<void> {
  if (owner)
    await program('chown', ['--recursive', '--no-dereference', `${owner.uid}:${owner.gid}`, '--', packed])
  await inDirectory(await trustedPath(files), '', async place => {
    for (const name of await readdir(packed)) {
      const made = place.at(`.${name}.${randomBytes(6).toString('hex')}`)
      const words = ['--archive', '--no-target-directory', '--remove-destination', '--']
      await program('cp', [...words, join(packed, name), made])
      await rename(made, place.at(name))
    }
  })
}

/** Gives an image its place; one that is there moves aside. */
async function placeImage(from: string, to: string, state: OpenDirectory, stamp: string): Promise<void> {
  if (await exists(to))
    await inAside(state, stamp, async aside => {
      await mkdir(aside.at('images'), { recursive: true, mode: 0o700 })
      await rename(to, aside.at(join('images', basename(to)))).catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'EXDEV'
          ? new Error(`${to} is there, and on another disk than the state: move it away, and restore again`)
          : error
      })
    })
  await rename(from, to)
}
