import { readdir, readFile, rename } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { Archive, INFO, infoText, refuseDirectory } from '../backup/archive.js'
import { isBackedUp, isShared, isStored, refuseHalfRestored } from '../backup/state-names.js'
import {
  addFiles,
  addNamedFile,
  addTexts,
  type EntryFilter,
  OpenFiles,
  topOf,
  treeOptions
} from '../backup/stored-files.js'
import type { Problem } from '../base/errors.js'
import type { Config } from '../config/types.js'
import {
  fillNew,
  hasDirectory,
  removeLeftovers,
  syncDirectory,
  temporaryOf,
  unlessMissing,
  withOpen
} from '../disk/file.js'
import { withLock } from '../disk/lock-file.js'
import { kinds, typeNames } from '../model/types.js'
import { startAttached } from '../program/held-program.js'
import { tryLockDirectory } from '../program/system.js'
import { LoadError, summaryOf } from '../store/errors.js'
import { StoredFiles } from '../store/files/stored.js'
import { LOG } from '../store/files/wal.js'
import { INTENTS } from '../store/medium.js'
import { isLocal } from '../store/record-kinds.js'
import { LAYOUT, VERSION } from '../store/start.js'
import { version } from '../version.js'
import { brokenObjects } from './checks.js'
import { configDirectories, iniName, namedFiles, shippedTemplates } from './config-files.js'
import { askDaemon, notStarted } from './transfer.js'
import { UsageError } from './usage.js'

/** Append-only files. Their content is fixed before the objects are read (rules 11.12). */
const appendOnly = /^audit(-machines)?\.log(\.\d+)?$/

/**
 * Writes a whole backup, or none, to a file (0600) or to standard output (`-`); returns a summary line. The
 * daemon may run and change objects. Throws Error if there is no state, or a file cannot be read or written.
 */
export async function backup(config: Config, file: string, images: boolean): Promise<string> {
  if (images && process.getuid?.() !== 0)
    throw new UsageError('--images needs root: the images hold files of root')
  const isStream = file === '-'
  const out = process.stdout
  if (isStream && out.isTTY)
    throw new UsageError('a backup is no text for a terminal: send it to a file or a program')
  const toOutput = (bytes: Uint8Array) =>
    new Promise((done, failed) => out.write(bytes, error => (error ? failed(error) : done(0))))
  const [held, problems] = isStream
    ? await writeContent(new Archive(toOutput), config, images)
    : await toFile(file, archive => writeContent(archive, config, images))
  const line = `backed up: ${config.paths.state}, ${held}, to ${isStream ? 'standard output' : file}\n`
  if (problems.length === 0) return line
  throw new Error(
    `${line.trim()}; but objects there break rules, and once it is restored no svcd starts before ` +
      'they are put right: ' +
      summaryOf(problems, 10)
  )
}

async function toFile(file: string, write: (archive: Archive) => Promise<Filled>): Promise<Filled> {
  await refuseDirectory(file)
  const directory = dirname(resolve(file))
  // The system's message would name the lock.
  if (!hasDirectory(directory)) throw new Error(`there is no directory ${directory}`)
  const lock = join(directory, `.${basename(file)}.lock`)
  return withLock({ lock, file, busy: `another svcd backup is writing ${file}` }, async () => {
    // A killed backup may have left most of an archive. Dates and numbers after the name are the admin's.
    await removeLeftovers(join(directory, `.${basename(file)}`), /\.[0-9a-f]{12}$/)
    const part = temporaryOf(file)
    return fillNew(part, async handle => {
      const filled = await write(new Archive(bytes => handle.writeFile(bytes)))
      await handle.sync()
      await rename(part, file)
      await syncDirectory(dirname(file))
      return filled
    })
  })
}

type Filled = readonly [held: string, problems: readonly Problem[]]

/** Writes the backup; returns a summary of its objects, and those in etcd that break a rule. */
async function writeContent(archive: Archive, config: Config, images: boolean): Promise<Filled> {
  const { state, templates, files } = config.paths
  await refuseNoState(config)
  // These files already have the lines of finished changes. Opened before the objects are read, they are
  // never ahead of them, just as after a crash.
  const open = await OpenFiles.open(state, appendOnly)
  let problems: readonly Problem[]
  try {
    const etcd = config.store.medium === 'etcd' ? await inEtcd(config) : undefined
    const local = new StoredFiles(state)
    problems = etcd ? await brokenObjects(etcd, config) : local.problems()
    const layout = (etcd ?? local).text(LAYOUT, VERSION) ?? '{"version":0}'
    const info = { version: Number(JSON.parse(layout).version), release: version.service, images }
    await archive.add(INFO, infoText(info))
    await addNamedFile(archive, config.file, iniName)
    for (const [name, place] of namedFiles(config)) await addNamedFile(archive, place, name)
    for (const [name, place] of configDirectories(config))
      await addFiles(archive, place, name, place === templates ? changedIn(templates) : undefined, true)
    await addState(archive, config, local, etcd)
    await open.addTo(archive, 'state')
  } finally {
    await open.close()
  }
  if (images) {
    await addFiles(archive, files, 'files', path => !path.startsWith('.'))
    await addTrees(archive, config.image.directory)
  }
  await archive.end()
  return [heldIn(archive), problems]
}

/** Throws Error if the state directory holds no state: an empty backup would mislead. */
async function refuseNoState({ paths: { state }, store }: Config): Promise<void> {
  await refuseHalfRestored(state)
  const names: string[] = await unlessMissing(readdir(state), [])
  // With objects in etcd, the keys are still in the state directory.
  if (store.medium === 'etcd' && names.includes('secret.key')) return
  if (store.medium !== 'etcd')
    for (const name of names.filter(isStored)) if ((await readdir(join(state, name))).length > 0) return
  throw new Error(notStarted(state))
}

/** `120 nodes and 14 other objects`. */
function heldIn({ entries }: Archive): string {
  const count = (type: string) => entries.get(`state/${type}`) ?? 0
  const nodes = count('node')
  const others = typeNames.reduce((sum, type) => sum + count(type), 0) - nodes
  // After a crash, files may lack changes.
  const more = count(LOG) + count(INTENTS) > 0 ? ', and changes that the next start completes' : ''
  return `${nodes} node${nodes === 1 ? '' : 's'} and ${others} other object${others === 1 ? '' : 's'}${more}`
}

const changedIn =
  (directory: string): EntryFilter =>
  async (path, isDirectory) => {
    if (isDirectory) return true
    const contentOf = (at: string) => unlessMissing(readFile(join(at, path)), undefined)
    const [mine, shipped] = await Promise.all([directory, shippedTemplates].map(contentOf))
    return !(mine && shipped?.equals(mine))
  }

/** Adds the state: the files of a stopped svcd, or the records and then the objects of a running one. */
async function addState(archive: Archive, config: Config, local: StoredFiles, etcd?: InEtcd): Promise<void> {
  const { state } = config.paths
  const release = await tryLockDirectory(state)
  try {
    const isInLog = (name: string) => isShared(name) || isLocal(name)
    const isElsewhere = etcd ? isShared : release ? () => false : isInLog
    const belongs = (name: string) => isBackedUp(name) && !appendOnly.test(name) && !isElsewhere(name)
    for (const entry of await readdir(state, { withFileTypes: true }))
      if (belongs(entry.name) && entry.isSymbolicLink())
        throw new Error(`${join(state, entry.name)} is a link: put the directory or file itself in its place`)
    await addFiles(archive, state, 'state', path => belongs(topOf(path)))
    if (etcd) await addTexts(archive, etcd.files())
    if (etcd || !release) await addTexts(archive, records(local, etcd))
    if (!etcd && !release) await addObjects(archive, config)
  } finally {
    await release?.()
  }
}

/** Yields the stored records, with path and text as files; with etcd, those not moved there. */
function* records(stored: StoredFiles, etcd?: InEtcd): Generator<readonly [path: string, text: string]> {
  const unread = (file: string, reason: string) => process.stderr.write(`left out: ${file}: ${reason}\n`)
  for (const entry of stored.recordFiles(unread))
    if (!etcd || !(entry[0].includes('/') || etcd.journals.has(entry[0]))) yield entry
  const layout = etcd ? undefined : stored.text(LAYOUT, VERSION)
  if (layout !== undefined) yield [`${LAYOUT}/${VERSION}.json`, layout]
}

type InEtcd = Awaited<ReturnType<typeof inEtcd>>

/** Reads a snapshot of etcd. Throws Error if it is empty, LoadError if it is damaged. */
async function inEtcd({ store }: Config) {
  const { openEtcd } = await import('../store/etcd/open.js')
  return withOpen(openEtcd(store), async etcd => {
    const stored = await etcd.read()
    const problems = stored.problems()
    if (problems.length > 0) throw new LoadError(problems)
    if (stored.isEmpty)
      throw new Error(
        `${stored.place()} holds no objects: look at [store] prefix; a svcd that still runs on files ` +
          'is backed up with medium = files'
      )
    return stored
  })
}

async function addObjects(archive: Archive, config: Config): Promise<void> {
  const answer = await askDaemon(config, 'GET', '/config/cluster/snapshot')
  const { snapshot } = JSON.parse(answer.toString('utf8')) as { snapshot: Record<string, string> }
  for (const [path, text] of Object.entries(snapshot)) {
    // A restore would refuse such a name.
    if (!Object.hasOwn(kinds, topOf(path)) || /(^|\/)\.{0,2}(\/|$)/.test(path))
      throw new Error(`the daemon names ${JSON.stringify(path)}, which is no object: look who listens there`)
    await archive.add(`state/${path}`, text)
  }
}

/** Adds the image directories with all metadata, by the system's tar. */
async function addTrees(archive: Archive, directory: string): Promise<void> {
  const entries = await unlessMissing(readdir(directory, { withFileTypes: true }), [])
  // Trees that svcd is creating or removing have hidden names.
  const names = entries
    .filter(entry => entry.isDirectory() && !entry.name.startsWith('.'))
    .map(({ name }) => name)
  if (names.length === 0) return
  const words = [...treeOptions, '--create', '--blocking-factor=1', '--transform=flags=rSh;s,^,images/,']
  const args = [...words, `--directory=${directory}`, '--', ...names.sort()]
  const { child, ended } = startAttached('tar', args, ['ignore', 'pipe', 'inherit'], {
    env: { ...process.env, LC_ALL: 'C' }
  })
  await archive.addTar(child.stdout as Readable)
  const code = await ended
  // Status 1: a file changed while it was read. tar has printed its name.
  if (code !== 0 && code !== 1)
    throw new Error(`tar ended with status ${code}: ${directory} is not in the backup`)
}
