import { createHash } from 'node:crypto'
import { statfs } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { runSliced } from '../../base/concurrency.js'
import { shown } from '../../base/log.js'
import { type Limits, run } from '../../program/program.js'
import { contentsOf } from './contents.js'

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
export function* digestsOf(listing: Listing, made: string): Generator<void, Record<string, string>> {
  const digests: Record<string, string> = {}
  for (const [directory, lines] of listing) {
    yield
    const inputs = lines.filter(line => [made, unfinished].every(path => !line.startsWith(`${path}\0`)))
    const text = inputs.sort().join('\n')
    if (text !== '') digests[directory] = createHash('sha256').update(text).digest('base64').slice(0, 16)
  }
  return digests
}

/** The path of a member as a person reads it. */
export const shownPath = (path: string) => `/${shown(Buffer.from(path.slice(2)))}`
