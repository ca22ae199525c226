import { randomBytes } from 'node:crypto'
import {
  chmod,
  type FileHandle,
  lchown,
  lstat,
  mkdir,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  writeFile
} from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import {
  type ArchiveEntry,
  BLOCK_BYTES,
  contentOf,
  entriesOf,
  INFO,
  openBackup,
  parseInfo,
  refuseUnreadable,
  verifyArchive
} from '../backup/archive.js'
import { isBackedUp, isOwnEntry, isStored, restoreDirectories } from '../backup/state-names.js'
import { treeOptions } from '../backup/stored-files.js'
import { shown } from '../base/log.js'
import { LONGEST_MS } from '../base/thread.js'
import { loadConfig } from '../config/load.js'
import type { Config } from '../config/types.js'
import { exists, fillNew, syncDirectory, unlessMissing, withOpen } from '../disk/file.js'
import {
  inDirectory,
  inTrusted,
  makeTrusted,
  type OpenDirectory,
  removeTree,
  trustedPath
} from '../disk/open-directory.js'
import { helperSettingsOf, imagesOf } from '../helper/directories.js'
import { migrations } from '../model/migrations.js'
import { run } from '../program/program.js'
import { tryLockDirectory } from '../program/system.js'
import { version } from '../version.js'
import { type Entry, iniName, type Owner, placeConfig } from './config-files.js'
import { type UnitUser, unitUser } from './owner.js'
import { UsageError } from './usage.js'

interface RestoreOptions {
  readonly file: string
  readonly ini: string
  readonly set: readonly string[]
  readonly force: boolean
}

const program = (name: string, args: readonly string[], user?: Owner) =>
  run(name, args, { user, timeLimitMs: LONGEST_MS })

const mostConfigBytes = 64 * 1024 * 1024
/** Bytes of a path that a system call accepts. */
const MOST_PATH = 4000

/**
 * Restores a backup while svcd is stopped; returns what was done. It reads the whole backup before it changes
 * anything. It keeps replaced configuration files as `….before-restore~`, and the old state in `replaced`
 * below the state directory. Once interrupted, no daemon starts before the next restore (rules 11.13).
 * @throws Error for a damaged backup, one of a newer svcd, an existing state or one in use
 */
export async function restore(options: RestoreOptions): Promise<string> {
  const { file } = options
  if (file === '-') throw new UsageError('a backup is read twice: give a file')
  return withOpen(openBackup(file), archive => restoreFrom(archive, options))
}

/** Restores from an open file, so that a replaced file has no effect. */
async function restoreFrom(archive: FileHandle, options: RestoreOptions): Promise<string> {
  const { file } = options
  await refuseUnreadable(archive, file)
  await verifyArchive(archive, file)
  const { found, tops, images } = await contentsOf(archive).catch(({ message }: Error) => {
    throw new Error(`${file}: ${message}; nothing is restored`)
  })
  if (!tops.has('state'))
    throw new Error(
      `${file} holds no state: it was made of a state directory on which no svcd had been started; ` +
        'nothing is restored'
    )
  if (images && process.getuid?.() !== 0)
    throw new UsageError(`${file} holds the directories of images: to restore them needs root`)
  const config = await newConfig(found.get(iniName)?.bytes, options)
  const { state } = config.paths
  // Root restores for the user of the unit.
  const owner = process.getuid?.() === 0 ? await unitUser(config.file) : undefined
  await makeState(state, owner)
  return inTrusted(state, async ({ at }) => {
    const held = { path: state, at }
    const release = await tryLockDirectory(at())
    if (!release)
      throw new Error(`svcd is running on ${state}: stop it first (systemctl stop svcd); nothing is changed`)
    try {
      return await restoreTo(held, { archive, found, tops, images, config, owner, options })
    } finally {
      await release()
    }
  })
}

interface Job {
  readonly archive: FileHandle
  readonly found: ReadonlyMap<string, Entry>
  readonly tops: ReadonlySet<string>
  readonly images: boolean
  readonly config: Config
  readonly owner: UnitUser | undefined
  readonly options: RestoreOptions
}

async function restoreTo(state: OpenDirectory, job: Job): Promise<string> {
  const { archive, found, images, config, owner, options } = job
  const { ini, force } = options
  const stamp = new Date().toISOString().replace(/[-:]/g, '')
  const aside = join(state.path, 'replaced', stamp)
  if (await exists(state.at('replaced'))) await inOwnDirectory(state, 'replaced', async () => {})
  const toEtcd = await toEtcdOf(job)
  if (await finish(state, stamp))
    return (
      `the restore that was interrupted is finished: ${state.path} is whole` +
      `${toEtcd === '' ? '' : `; next: ${toEtcd}svcd check, then start svcd`}\n`
    )
  const old = (await readdir(state.at())).filter(isOwnEntry)
  if (old.length > 0 && !force)
    throw new Error(
      `${state.path} holds a state already: with --force it is kept aside, in ${aside}; nothing is changed`
    )
  const part = state.at(restoreDirectories.part)
  await removeTree(part, join(state.path, restoreDirectories.part))
  try {
    await mkdir(part, { mode: 0o700 })
    await inOwnDirectory(state, restoreDirectories.part, place => extractState(archive, place.at(), owner))
    if (images) await unpackImages(job)
  } catch (error) {
    // Nothing has changed yet, so the daemon may start again.
    await removeTree(part).catch(() => {})
    throw error
  }
  if (images) await placeImages(job, state, stamp)
  const replaced = await placeConfig(found, config, ini, owner)
  await program('sync', ['--file-system', state.at()])
  await rename(part, state.at(restoreDirectories.ready))
  await syncDirectory(state.at())
  await finish(state, stamp)
  const kept = [...(old.length > 0 ? [aside] : []), ...replaced].map(path => `kept aside: ${path}\n`)
  return (
    `${kept.join('')}restored: ${ini}, ${state.path}; ` +
    `next: ${toEtcd}svcd check, then start svcd (systemctl start svcd)\n`
  )
}

/** Returns the next steps if the objects belong into etcd: only an admin may replace those in etcd. */
async function toEtcdOf({ config: { store }, owner }: Job): Promise<string> {
  if (store.medium !== 'etcd') return ''
  const { removalCommand: removalFrom } = await import('../store/etcd/open.js')
  return (
    `stop svcd on all controllers, then ${removalFrom(store)}, then ` +
    `${owner ? `runuser -u ${owner.user} -- ` : ''}svcd store copy files etcd, then `
  )
}

/** Moves a complete restored state into place; returns whether there was one. It can only go forward. */
async function finish(state: OpenDirectory, stamp: string): Promise<boolean> {
  const { ready, clear } = restoreDirectories
  if (await exists(state.at(ready))) {
    await inOwnDirectory(state, ready, async () => {})
    const old = (await readdir(state.at())).filter(isOwnEntry)
    if (old.length > 0)
      await inReplacedDirectory(state, stamp, async aside => {
        for (const name of old) await rename(state.at(name), aside.at(name))
      })
    await syncDirectory(state.at())
    await rename(state.at(ready), state.at(clear))
  }
  if (!(await exists(state.at(clear)))) return false
  await inOwnDirectory(state, clear, async from => {
    for (const name of await readdir(from.at())) await rename(from.at(name), state.at(name))
  })
  await syncDirectory(state.at())
  await rmdir(state.at(clear))
  await syncDirectory(state.at())
  return true
}

/** Runs work in a subdirectory. svcd can create any name there: throws Error for links and foreign owners. */
async function inOwnDirectory<T>(
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
        `${path} belongs to user ${uid}, who can exchange what is in it: restore as that user, or ` +
          'move it away'
      )
    return work({ path, at })
  })
}

/** Runs work in the directory for replaced files of this restore, which it creates if needed. */
async function inReplacedDirectory<T>(
  state: OpenDirectory,
  stamp: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> {
  await mkdir(state.at('replaced'), { recursive: true, mode: 0o700 })
  return inOwnDirectory(state, 'replaced', async replaced => {
    await mkdir(replaced.at(stamp), { recursive: true, mode: 0o700 })
    return inOwnDirectory(replaced, stamp, work)
  })
}

/** Whether `svcd backup` writes such an entry: files, below `images` any type, nothing outside or hidden. */
function isKnown({ path, type }: ArchiveEntry): boolean {
  const names = (type === 'Directory' ? path.replace(/\/$/, '') : path).split('/')
  if (path.includes('\0') || names.some(name => name === '' || name === '.' || name === '..')) return false
  const [top, name] = names
  if (top === 'images')
    return names.length > 2
      ? /^(File|Directory|(Symbolic)?Link|(Character|Block)Device|FIFO)$/.test(type)
      : type === 'Directory' && !name?.startsWith('.') && !path.includes('\ufffd')
  if (type !== 'File' || path.length > MOST_PATH) return false
  if (name === undefined) return path === INFO
  return top === 'config' || top === 'files' || (top === 'state' && isBackedUp(name))
}

/** Reads the configuration, top directories and info of a backup. Throws Error for a foreign or newer one. */
async function contentsOf(archive: FileHandle): Promise<Pick<Job, 'found' | 'tops' | 'images'>> {
  const found = new Map<string, Entry>()
  const tops = new Set<string>()
  const isDirectory = new Map<string, boolean>()
  let left = mostConfigBytes
  for await (const entry of entriesOf(archive)) {
    const { path, mode, size } = entry
    if (!isKnown(entry))
      throw new Error(`${shown(Buffer.from(path))} (${entry.type}) does not belong into a backup`)
    const [top = '', name = ''] = path.split('/')
    if (top !== 'state' || isStored(name)) tops.add(top)
    if (top === 'images') continue
    for (let up = path; up !== '.'; up = dirname(up)) {
      const isAbove = up !== path
      if (isAbove ? isDirectory.get(up) === false : isDirectory.has(up))
        throw new Error(`${shown(Buffer.from(up))} stands there twice`)
      isDirectory.set(up, isAbove)
    }
    if (path !== INFO && top !== 'config') continue
    left -= size + BLOCK_BYTES
    if (left < 0) throw new Error('its configuration is larger than 64 MiB')
    found.set(path, { bytes: await buffer(contentOf(archive, entry)), mode: mode & 0o777 })
  }
  const info = parseInfo(String(found.get(INFO)?.bytes))
  const known = migrations('').length
  if (info.version > known)
    throw new Error(
      `its state has layout version ${info.version}, made by svcd ${info.release}, and svcd ` +
        `${version.service} knows versions up to ${known}: install svcd ${info.release} or a later one`
    )
  return { found, tops, images: info.images }
}

/** Loads the configuration of the backup at its future path; without one, the present configuration. */
async function newConfig(text: Buffer | undefined, { ini, set }: RestoreOptions): Promise<Config> {
  if (!text) return loadConfig(ini, set)
  await makeTrusted(dirname(ini), 0o755)
  const trial = join(dirname(ini), `.${basename(ini)}.${randomBytes(6).toString('hex')}`)
  await writeFile(trial, text, { mode: 0o600, flag: 'wx' })
  try {
    return { ...loadConfig(trial, set), file: ini }
  } finally {
    await rm(trial, { force: true })
  }
}

async function makeState(state: string, owner: Owner | undefined): Promise<void> {
  if (await exists(state)) return
  await makeTrusted(state, 0o700)
  if (!owner) return
  // As in the package: in a sticky directory of root, svcd cannot replace the images.
  await lchown(state, 0, owner.gid)
  await chmod(state, 0o1771)
}

async function extractFiles(archive: FileHandle, top: string, into: string): Promise<void> {
  for await (const entry of entriesOf(archive)) {
    if (!isKnown(entry) || !entry.path.startsWith(`${top}/`)) continue
    const place = join(into, entry.path.slice(top.length + 1))
    await mkdir(dirname(place), { recursive: true, mode: 0o700 })
    await fillNew(place, async made => {
      for await (const piece of contentOf(archive, entry)) await made.writeFile(piece)
      await made.chmod(entry.mode & 0o777)
    })
  }
}

/** Unpacks the state as files (0600) in directories (0700) of `owner`. The top directory stays ours. */
async function extractState(archive: FileHandle, part: string, owner: Owner | undefined): Promise<void> {
  await extractFiles(archive, 'state', part)
  const all = await readdir(part, { recursive: true, withFileTypes: true })
  for (const entry of all) {
    const path = join(entry.parentPath, entry.name)
    await chmod(path, entry.isDirectory() ? 0o700 : 0o600)
    if (owner) await lchown(path, owner.uid, owner.gid)
  }
}

/** Where images are unpacked: only root can change names there (imagesOf). */
const partOfImages = async ({ image }: Config) => join(await trustedPath(image.directory), '.restore.part')

/** Unpacks packed files and image directories beside the present images. */
async function unpackImages({ archive, tops, config, owner, options }: Job): Promise<void> {
  await makeTrusted(config.image.directory, 0o755)
  await imagesOf(helperSettingsOf(config, owner === undefined))
  const part = await partOfImages(config)
  await removeTree(part)
  await mkdir(part, { mode: 0o700 })
  try {
    if (tops.has('files')) await extractFiles(archive, 'files', join(part, 'files'))
    if (!tops.has('images')) return
    await program('tar', [
      ...['--extract', '--same-owner', '--preserve-permissions', ...treeOptions.slice(1, -1)],
      ...[`--file=/proc/${process.pid}/fd/${archive.fd}`, `--directory=${part}`, '--', 'images']
    ]).catch(({ stderr, message }) => {
      throw new Error(
        `${options.file}: tar cannot unpack the images; nothing is restored: ${stderr || message}`
      )
    })
    // tar read the archive by itself, so its result is checked.
    await inDirectory(part, 'images', async images => {
      for (const entry of await readdir(images.at(), { withFileTypes: true }))
        if (!entry.isDirectory() || entry.name.startsWith('.'))
          throw new Error(
            `${options.file}: images/${entry.name} is no directory of an image; nothing is restored`
          )
    })
  } catch (error) {
    await removeTree(part).catch(() => {})
    throw error
  }
}

/** Moves unpacked images and files into place, and images of the same names aside. */
async function placeImages({ config, owner }: Job, state: OpenDirectory, stamp: string): Promise<void> {
  const { files } = config.paths
  const part = await partOfImages(config)
  if (!(await exists(files))) {
    await makeTrusted(files, 0o700)
    if (owner) await lchown(files, owner.uid, owner.gid)
  }
  for (const name of await unlessMissing(readdir(join(part, 'images')), []))
    await placeImage(join(part, 'images', name), join(dirname(part), name), state, stamp)
  if (await exists(join(part, 'files'))) await placeFiles(join(part, 'files'), files, owner)
  await removeTree(part)
  await program('sync', ['--file-system', dirname(part), files])
}

/** Copies packed files with the rights of the directory's owner, who may have put links there. */
async function placeFiles(packed: string, files: string, owner: Owner | undefined): Promise<void> {
  if (owner)
    await program('chown', ['--recursive', '--no-dereference', `${owner.uid}:${owner.gid}`, '--', packed])
  await chmod(dirname(packed), 0o711)
  const words = ['--archive', '--remove-destination', `--target-directory=${await trustedPath(files)}`, '--']
  for (const name of await readdir(packed)) await program('cp', [...words, join(packed, name)], owner)
}

async function placeImage(from: string, to: string, state: OpenDirectory, stamp: string): Promise<void> {
  if (await exists(to))
    await inReplacedDirectory(state, stamp, async aside => {
      await mkdir(aside.at('images'), { recursive: true, mode: 0o700 })
      await rename(to, aside.at(join('images', basename(to)))).catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'EXDEV'
          ? new Error(`${to} is there, and on another disk than the state: move it away, and restore again`)
          : error
      })
    })
  await rename(from, to)
}
