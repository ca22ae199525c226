import { createHash, hash } from 'node:crypto'
import { readdir, readFile, statfs } from 'node:fs/promises'
import { arch, release } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { runSliced, timeLimited } from '../../base/concurrency.js'
import { shown } from '../../base/log.js'
import { openInside } from '../../disk/open-directory.js'
import { type Limits, run } from '../../program/program.js'
import { contentsOf } from './contents.js'
import type { Initramfs, InitramfsRequest } from './initramfs.js'
import { shipped } from './sandbox.js'

/** The initramfs that a pack takes. */
export interface CachedInitramfs extends Initramfs {
  /** False: the last build's is used again. */
  readonly isBuilt: boolean
  /** To be given to the next call; undefined after a reuse, and where the next pack has to build. */
  readonly record?: string
}

interface CacheRequest extends Omit<InitramfsRequest, 'tree' | 'byRoot'> {
  /** The image's path, for messages and for the record. */
  readonly path: string
  /** The image's directory, held open. */
  readonly tree: string
  /** The `record` of the last build of this image. */
  readonly record?: string | undefined
  build(): Promise<Initramfs | undefined>
}

/** The content of a record. */
interface Build extends Initramfs {
  /** Digest of all that goes into the initramfs beside the image. */
  readonly key: string
  /** Digest of the initramfs. */
  readonly sha256: string
  /** Directory of the image → digest of what was in it before the build. */
  readonly directories: Readonly<Record<string, string>>
}

/** The line that goes to svcd has 16 MiB at most. */
const RECORD_BYTES_MAX = 4 * 1024 * 1024

const CHUNK_BYTES = 1024 * 1024

/**
 * Returns the last build's initramfs where nothing has changed that it may be made of, else a new one, and
 * undefined where the image has no tool. Whatever is in doubt is built (rules 9.4). Throws what `build`
 * throws.
 */
export async function initramfsOf(request: CacheRequest): Promise<CachedInitramfs | undefined> {
  const { tree, path, line } = request
  const key = await keyOf(request)
  const last = request.record === undefined ? undefined : parse(request.record)
  const why = await whyBuild(request, key, last).catch((error: Error) => error.message)
  if (last !== undefined && why === undefined) {
    line('the initramfs of the last pack is used: nothing that it is made of has changed')
    return { tool: last.tool, initrd: last.initrd, isBuilt: false }
  }
  line(`the initramfs is built: ${why}`)
  const doubt = (error: Error) => {
    line(`the next pack builds the initramfs again: ${error.message}`)
    return undefined
  }
  // Listed first: a file that changes during the build is another one at the next pack.
  const listing = await listTree(tree, request).catch(doubt)
  const built = await request.build()
  if (built === undefined || listing === undefined) return built && { ...built, isBuilt: true }
  const recorded = async () => {
    const directories = await runSliced(digestsOf(listing, `./${built.initrd}`))
    return written({ ...built, key, sha256: await checksum(tree, built.initrd, path, request), directories })
  }
  const record = await recorded().catch(doubt)
  return { ...built, isBuilt: true, ...(record === undefined ? {} : { record }) }
}

/** Why the initramfs has to be built, as a sentence; undefined where the last one is as good as a new one. */
async function whyBuild(request: CacheRequest, key: string, last: Build | undefined) {
  if (last === undefined) return 'nothing is known of an earlier build'
  if (last.key !== key) return 'its kernel, its modules, svcd or this machine is another one'
  const { tree, path } = request
  const made = `./${last.initrd}`
  const [directories, sha256] = await Promise.all([
    listTree(tree, request).then(listing => runSliced(digestsOf(listing, made))),
    checksum(tree, last.initrd, path, request).catch(() => undefined)
  ])
  if (sha256 !== last.sha256) return `${shownPath(made)} is not the one that was built`
  // Directories of both: an empty one has no digest.
  const all = Object.keys({ ...last.directories, ...directories })
  const changed = all.find(name => directories[name] !== last.directories[name])
  return changed === undefined ? undefined : `something in ${shownPath(changed)} has changed`
}

/** Reads the file in pieces, which is faster than to start a thread for it. */
async function checksum(tree: string, initrd: string, path: string, limits: Limits): Promise<string> {
  const file = await openInside(tree, initrd, path)
  const digest = createHash('sha256')
  const { signal, release } = timeLimited(limits)
  try {
    for await (const chunk of file.createReadStream({ highWaterMark: CHUNK_BYTES, signal }))
      digest.update(chunk)
    return digest.digest('hex')
  } finally {
    release()
  }
}

/** Digests what goes into an initramfs beside the image: the request, svcd's own part, the running kernel. */
async function keyOf({ path, kernelversion, dracutmodules, kernelmodules }: CacheRequest): Promise<string> {
  const digest = createHash('sha256')
  digest.update(JSON.stringify([path, kernelversion, dracutmodules, kernelmodules, release(), arch()]))
  const own = [`${shipped}package.json`, fileURLToPath(new URL('./sandbox.js', import.meta.url))]
  for (const directory of ['dracut', 'initramfs-tools', 'libexec'])
    for (const entry of await readdir(`${shipped}${directory}`, { recursive: true, withFileTypes: true }))
      if (entry.isFile()) own.push(join(entry.parentPath, entry.name))
  for (const file of own.sort())
    digest.update(JSON.stringify([file.slice(shipped.length), (await readFile(file)).toString('base64')]))
  return digest.digest('hex')
}

/** Writes a build as a text that begins with its own checksum. Throws Error where it is too long. */
function written(build: Build): string {
  const text = JSON.stringify(build)
  const record = `${hash('sha256', text)} ${text}`
  if (Buffer.byteLength(JSON.stringify(record)) > RECORD_BYTES_MAX)
    throw new Error('the image has too many directories to remember')
  return record
}

/** Reads a record; undefined for one that is not whole, or of a version that kept something else. */
function parse(record: string): Build | undefined {
  const text = record.slice(65)
  if (record.slice(0, 65) !== `${hash('sha256', text)} `) return undefined
  const build: Build = JSON.parse(text)
  return build.directories === undefined ? undefined : build
}

/** Directory (`./a/b`) → a line of metadata for each member, which begins with the member's path. */
export type Listing = ReadonlyMap<string, readonly string[]>

/** A build sees directories of its own at the first five (hold-image.sh). The others are no inputs. */
const leftOut = [
  ...['./dev', './proc', './run', './sys', './tmp'],
  ...['backups', 'cache', 'log', 'mail', 'spool', 'tmp'].map(name => `./var/${name}`),
  ...['apt', 'dnf', 'dpkg', 'rpm'].map(name => `./var/lib/${name}`)
]

/** The name of a file that build-initramfs.sh has not finished. */
const unfinished = './boot/.svc-initrd.new'

/** ext2 to ext4, XFS, Btrfs, tmpfs (statfs(2)): each change of a file there sets its ctime. */
const knownFileSystems = [0xef53, 0x58465342, 0x9123683e, 0x01021994]

/** Two changes within this time may get the same ctime. */
const TICK_MS = 20

/** Some 600,000 members. */
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024

/** Type, mode, owner, group, device; inode, size and ctime of what is no directory; path. */
const format = ['-printf', '%y %m %U %G %D', '(', '-type', 'd', '-printf', ' - - -']
  .concat(['-o', '-printf', ' %i %s %C@', ')'])
  .concat(['-printf', ' %p\\0'])

/**
 * Lists what a tree's initramfs may be made of: metadata alone, by find, which follows no link. Throws Error
 * where a later change might not show: other file systems, mounts, a file changed just now.
 */
export async function listTree(tree: string, { signal, timeLimitMs }: Limits): Promise<Listing> {
  if (!knownFileSystems.includes((await statfs(tree)).type))
    throw new Error('this file system is not known to give each change a new ctime')
  const { mounts } = await contentsOf(tree, [])
  const mounted = mounts.find(({ path }) => !leftOut.some(top => path === top || path.startsWith(`${top}/`)))
  if (mounted) throw new Error(`something is mounted at ${shownPath(mounted.path)}`)
  await sleep(2 * TICK_MS)
  const newestMs = Date.now() - TICK_MS
  const pruned = leftOut.flatMap((path, i) => [...(i === 0 ? [] : ['-o']), '-path', path])
  const { stdout } = await run('find', ['.', '-xdev', '(', ...pruned, ')', '-prune', '-o', ...format], {
    ...{ signal, timeLimitMs, cwd: tree },
    maxOutput: OUTPUT_BYTES_MAX
  })
  return runSliced(parsed(stdout, newestMs))
}

function* parsed(stdout: string, newestMs: number): Generator<void, Listing> {
  const listing = new Map<string, string[]>()
  let treeDevice: string | undefined
  for (let at = 0; at < stdout.length; ) {
    yield
    const end = stdout.indexOf('\0', at)
    const [type, mode, uid, gid, device, inode, size, ctime = '', ...rest] = stdout.slice(at, end).split(' ')
    at = end + 1
    const path = rest.join(' ')
    treeDevice ??= device
    if (device !== treeDevice) throw new Error(`${shownPath(path)} is on another file system`)
    if (path.includes('\ufffd')) throw new Error(`${shownPath(path)} has a name that is not UTF-8`)
    if (type !== 'd' && endMsOf(ctime) > newestMs)
      throw new Error(`${shownPath(path)} was changed just before`)
    const directory = path.slice(0, path.lastIndexOf('/'))
    const lines = listing.get(directory) ?? []
    if (lines.push([path, type, mode, uid, gid, inode, size, ctime].join('\0')) === 1)
      listing.set(directory, lines)
  }
  return listing
}

/** The last moment with this ctime (s), in ms: some file systems count whole seconds. */
const endMsOf = (ctime: string) => (Number(ctime) + (/\.0+$/.test(ctime) ? 1 : 0)) * 1000

/** Digests each directory of a listing that has members beside the initramfs that was `made` (`./boot/…`). */
function* digestsOf(listing: Listing, made: string): Generator<void, Record<string, string>> {
  const digests: Record<string, string> = {}
  for (const [directory, lines] of listing) {
    yield
    const inputs = lines.filter(line => [made, unfinished].every(path => !line.startsWith(`${path}\0`)))
    const text = inputs.sort().join('\n')
    if (text !== '') digests[directory] = hash('sha256', text, 'base64').slice(0, 16)
  }
  return digests
}

/** The path of a member as a person reads it. */
export const shownPath = (path: string) => `/${shown(Buffer.from(path.slice(2)))}`
