import { hash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  utimesSync
} from 'node:fs'
import { join } from 'node:path'
import { answerQuestions } from '../../base/thread.js'
import { authenticode } from '../../tpm/authenticode.js'
import { TpmError } from '../../tpm/cursor.js'
import type { KnownFile, Placed, PlaceJob } from './tree.js'

// The thread of BootTree: reading, hashing and copying of a kernel take a second.
answerQuestions(place)

/** Brings files to their places in the tree; they are there when it returns. */
function place({ directory, files, names, loaders, known, programs, kept }: PlaceJob): Placed {
  const contents = join(directory, 'svcd')
  mkdirSync(contents, { recursive: true })
  // The TFTP server is another user, whatever svcd's umask is.
  for (const path of [directory, contents]) chmodSync(path, 0o755)
  const now: Record<string, KnownFile> = {}
  for (const name of names) {
    const found = hashed(join(files, name), known[name])
    if (!found) continue
    put(join(files, name), join(contents, found.sha256))
    now[name] = found
  }
  removeLies(files, contents, now)
  const present: Record<string, KnownFile> = {}
  const missing = loaders.filter(({ name, from }) => {
    const found = hashed(from, programs[name])
    if (found) {
      put(from, join(directory, name))
      present[name] = found
    } else rmSync(join(directory, name), { force: true })
    return !found
  })
  const there = readdirSync(contents)
  const needed = new Set([...(kept ?? there), ...Object.values(now).map(({ sha256 }) => sha256)])
  for (const name of there) if (!needed.has(name)) rmSync(join(contents, name), { force: true })
  return { known: now, programs: present, missing: missing.map(({ name }) => name), there }
}

const inodeOf = ({ dev, ino }: Stats) => `${dev} ${ino}`

/** Removes links to files that were written over in place; the old content of a replaced file stays. */
function removeLies(files: string, contents: string, now: Readonly<Record<string, KnownFile>>): void {
  const hashes = new Map<string, string>()
  for (const [name, { sha256 }] of Object.entries(now)) {
    const stat = statSync(join(files, name), { throwIfNoEntry: false })
    if (stat) hashes.set(inodeOf(stat), sha256)
  }
  for (const name of readdirSync(contents)) {
    const sha256 = hashes.get(inodeOf(statSync(join(contents, name))))
    if (sha256 !== undefined && sha256 !== name) rmSync(join(contents, name), { force: true })
  }
}

const sameStat = (stat: Stats, { size, mtimeMs, ino }: KnownFile) =>
  stat.size === size && stat.mtimeMs === mtimeMs && stat.ino === ino

/** Hashes a file, unless it is as it was; undefined if it is missing or is being written. */
function hashed(path: string, before: KnownFile | undefined): KnownFile | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  if (!stat?.isFile()) return undefined
  if (before && sameStat(stat, before)) return before
  const bytes = readFileSync(path)
  const { size, mtimeMs, ino } = stat
  const sha256 = hash('sha256', bytes)
  const program = programOf(bytes)
  const found = { size, mtimeMs, ino, sha256, ...(program && { program }) }
  return sameStat(statSync(path), found) ? found : undefined
}

function programOf(bytes: Buffer): string | undefined {
  try {
    return authenticode(bytes).toString('hex')
  } catch (error) {
    if (error instanceof TpmError) return undefined
    throw error
  }
}

const readable = 0o004

/** Links or copies a file to its place, unless it is there already. The TFTP server is another user. */
function put(from: string, to: string): void {
  const source = statSync(from)
  const there = statSync(to, { throwIfNoEntry: false })
  if (there && (there.ino === source.ino || isCopy(there, source))) return
  const temporary = `${to}.new`
  rmSync(temporary, { force: true })
  if (!(source.mode & readable && linked(from, temporary))) {
    copyFileSync(from, temporary)
    chmodSync(temporary, 0o644)
    utimesSync(temporary, source.atime, source.mtime)
  }
  renameSync(temporary, to)
}

const isCopy = (there: Stats, source: Stats) =>
  there.size === source.size && Math.abs(there.mtimeMs - source.mtimeMs) < 1 && (there.mode & readable) !== 0

function linked(from: string, to: string): boolean {
  try {
    // A link to a symbolic link would lead out of the tree.
    linkSync(realpathSync(from), to)
    return true
  } catch {
    // Another file system, or a file of another user.
    return false
  }
}
