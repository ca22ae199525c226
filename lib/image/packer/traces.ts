import { createHash } from 'node:crypto'
import { statfs } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { inSlices } from '../../concurrency.js'
import { shown } from '../../disk/printable.js'
import { run } from '../../program/program.js'
import { contentsOf } from './contents.js'

/*
 * What a build may have seen of an image, and whether it is still the same. A build runs where each read sets the time of
 * reading (hold-image.sh). So what was read has another one after it. Nothing here trusts what stands in the image: it is
 * find that walks, by descriptors, and no link is followed.
 */

/** A member at one time. */
interface Entry {
  readonly kind: 'directory' | 'file' | 'other'
  /** Time of reading; '' where it is too new to tell anything. */
  readonly atime: string
  /** What one sees of it without its content: what it is, whose, who may do what, whether it is empty. */
  readonly looks: string
  /** Another one after each change; undefined where that is not sure, as it was changed just now. */
  readonly identity: string | undefined
  readonly isElsewhere: boolean
}

/** The members of a tree, by path (`./a/b`). */
export type Entries = ReadonlyMap<string, Entry>

/** What a build has seen: path → print. Another print means that something has changed. */
export interface Prints {
  /** Of directories: names, and what one sees of each. */
  readonly listings: Readonly<Record<string, string>>
  /** Of files that were read. */
  readonly files: Readonly<Record<string, string>>
}

export interface Limits {
  readonly signal: AbortSignal
  readonly timeLimitMs: number
}

/** Directories of their own lie there during a build (hold-image.sh), so that nothing of these is seen. */
const covered = ['./dev', './proc', './run', './sys', './tmp']

/** What is in there means nothing to an initramfs unless it was read: what changes often, and what people read. */
const idle = [
  ...['./home', './media', './mnt', './srv'],
  ...['./var/backups', './var/cache', './var/log', './var/mail', './var/spool', './var/tmp'],
  ...['./var/lib/apt', './var/lib/dnf', './var/lib/dpkg', './var/lib/rpm'],
  ...['doc', 'info', 'locale', 'man', 'zoneinfo'].map(name => `./usr/share/${name}`)
]
const isIdle = (path: string) => idle.some(top => path === top || path.startsWith(`${top}/`))

/**
 * Where packages put programs: each change of a file counts here, read or not. A program may go by the time of a file that
 * it does not read, as Python does with what it has compiled.
 */
const programs = /^\.\/(?:usr(?!\/local\/)|bin|sbin|lib[^/]*|boot)\/|\.py$/

/** No file system's clock is coarser. After a change as new as that, another one may get the same time. */
const TICK_MS = 20

/** ext2 to ext4, XFS, Btrfs, tmpfs (statfs(2)). */
const tracing = [0xef53, 0x58465342, 0x9123683e, 0x01021994]
const untold = 'this file system does not tell which files were read'

/** What build-initramfs.sh writes before it has its name. */
const unfinished = './boot/.svc-initrd.new'

/** Some 600,000 members. */
const MOST_BYTES = 64 * 1024 * 1024

/** What find tells of a member: the last is its path, from the tree. */
const told = ['%y', '%D', '%m', '%U', '%G', '%i', '%s', '%T@', '%C@', '%A@', './%P']

/**
 * The members of a tree, but for what is covered during a build and what is in `leftOut`. Throws Error where they cannot be
 * read, are too many, or have a name that is not UTF-8.
 */
async function entriesOf(tree: string, limits: Limits, leftOut: readonly string[] = []): Promise<Entries> {
  const newest = `${(Date.now() - TICK_MS) / 1000}`
  const { mounts } = await contentsOf(tree, [])
  const mounted = new Set(mounts.map(({ path }) => path))
  const pruned = [...covered, ...leftOut].flatMap((path, i) => [...(i === 0 ? [] : ['-o']), '-path', path])
  // A comma: what is not entered is told too.
  const tell = ['(', ...pruned, ')', '-prune', ',', '-printf', `${told.join(' ')}\\0`]
  const { stdout } = await run('find', ['.', '-xdev', ...tell], {
    ...limits,
    cwd: tree,
    maxOutput: MOST_BYTES
  })
  return inSlices(parsed(stdout, newest, mounted))
}

/**
 * The members of a tree before a build. Throws as `entriesOf`, and Error for a file system of which it is not known that
 * each read sets a time: others do that for some files alone.
 */
export async function entriesBefore(tree: string, limits: Limits): Promise<Entries> {
  if (!tracing.includes((await statfs(tree)).type)) throw new Error(untold)
  // To walk is to read directories, which may set their times of reading: the first time, not again.
  await entriesOf(tree, limits)
  // What was read or changed so far is not of this moment any more then.
  await sleep(2 * TICK_MS)
  return entriesOf(tree, limits)
}

function* parsed(stdout: string, newest: string, mounted: ReadonlySet<string>): Generator<void, Entries> {
  const entries = new Map<string, Entry>()
  let device: string | undefined
  for (let at = 0; at < stdout.length; ) {
    yield
    const end = stdout.indexOf('\0', at)
    const [kind = '', dev, mode, uid, gid, inode, size, mtime, ctime = '', atime = '', ...rest] = stdout
      .slice(at, end)
      .split(' ')
    at = end + 1
    const told = rest.join(' ')
    const path = told === './' ? '.' : told
    device ??= dev
    if (covered.includes(path)) continue
    if (path.includes('\ufffd')) throw new Error(`${shown(Buffer.from(path))} has a name that is not UTF-8`)
    const isFile = kind === 'f'
    const isElsewhere = dev !== device || mounted.has(path)
    entries.set(path, {
      kind: kind === 'd' ? 'directory' : isFile ? 'file' : 'other',
      atime: isNewer(atime, newest) ? '' : atime,
      looks: [kind, mode, uid, gid, isFile && size === '0', isElsewhere].join(' '),
      identity: isNewer(ctime, newest) ? undefined : [inode, size, mtime, ctime].join(' '),
      isElsewhere
    })
  }
  return entries
}

/** Of two times in seconds. */
const isNewer = (one: string, other: string) => Number(one) > Number(other)

/**
 * The prints of all that a build has seen, as they were in `before`. `tool` is the program that has built, `made` the path
 * of what it made (`./boot/…`). Throws an Error with the reason where it is not sure what was seen.
 */
export async function seenSince(
  before: Entries,
  tree: string,
  tool: string,
  made: string,
  limits: Limits
): Promise<Prints> {
  return inSlices(seen(before, await entriesOf(tree, limits), tool, made))
}

function* seen(before: Entries, now: Entries, tool: string, made: string): Generator<void, Prints> {
  const listed = new Set<string>()
  const files: string[] = []
  let isTraced = false
  for (const [path, { kind, atime, isElsewhere }] of before) {
    yield
    if (isElsewhere) throw new Error(`${named(path)} lies on another file system`)
    const isRead = atime === '' || atime !== now.get(path)?.atime
    if (kind === 'directory') {
      if (isRead || !isIdle(path)) listed.add(path)
    } else if (isRead) {
      listed.add(parentOf(path))
      if (kind === 'file' && !programs.test(path)) files.push(path)
      if (atime !== '' && /\/s?bin\//.test(path) && path.endsWith(`/${tool}`)) isTraced = true
    }
  }
  if (!isTraced) throw new Error(untold)
  const prints = { listings: yield* listingsOf(before, listed, made), files: filesOf(before, files) }
  for (const [path, print] of [...Object.entries(prints.listings), ...Object.entries(prints.files)])
    if (print === undefined) throw new Error(`${named(path)} was changed just before`)
  return prints as Prints
}

/** What has changed since, as a sentence; undefined where nothing has. Throws an Error for a tree that cannot be read. */
export async function changeSince(
  prints: Prints,
  tree: string,
  made: string,
  limits: Limits
): Promise<string | undefined> {
  // Time goes into the members: those that cannot matter are left out.
  const known = [...Object.keys(prints.listings), ...Object.keys(prints.files)]
  const unknown = idle.filter(top => !known.some(path => path === top || path.startsWith(`${top}/`)))
  return inSlices(changed(prints, await entriesOf(tree, limits, unknown), made))
}

function* changed(
  { listings, files }: Prints,
  now: Entries,
  made: string
): Generator<void, string | undefined> {
  const differing = (old: Readonly<Record<string, string>>, prints: Found) =>
    Object.keys(old).find(path => prints[path] === undefined || prints[path] !== old[path])
  const file = differing(files, filesOf(now, Object.keys(files)))
  if (file !== undefined) return `${named(file)} has changed`
  const directory = differing(listings, yield* listingsOf(now, new Set(Object.keys(listings)), made))
  return directory === undefined ? undefined : `something in ${named(directory)} has changed`
}

/** For a person to read. */
const named = (path: string) => `/${shown(Buffer.from(path.slice(2)))}`

type Found = Readonly<Record<string, string | undefined>>

const printOf = (...texts: readonly string[]) =>
  createHash('sha256').update(texts.join('\0')).digest('base64').slice(0, 16)

/** undefined: it is not there, or was changed just now. */
const filesOf = (entries: Entries, paths: readonly string[]): Found =>
  Object.fromEntries(
    paths.map(path => {
      const { looks, identity } = entries.get(path) ?? {}
      return [path, identity === undefined ? undefined : printOf(looks ?? '', identity)]
    })
  )

/** undefined: something in it was changed just now. What is not there is as something empty. */
function* listingsOf(
  entries: Entries,
  directories: ReadonlySet<string>,
  made: string
): Generator<void, Found> {
  const texts = new Map<string, string[] | undefined>([...directories].map(path => [path, []]))
  for (const [path, { kind, looks, identity }] of entries) {
    yield
    const parent = parentOf(path)
    const listing = texts.get(parent)
    if (listing === undefined || path === made || path === unfinished) continue
    const isWhole = kind === 'other' || (kind === 'file' && programs.test(path))
    if (isWhole && identity === undefined) texts.set(parent, undefined)
    else listing.push(`${path}\0${looks}\0${isWhole ? identity : ''}`)
  }
  const prints: Record<string, string | undefined> = {}
  for (const [path, listing] of texts) {
    yield
    prints[path] = listing && printOf(...listing.sort())
  }
  return prints
}

const parentOf = (path: string) => path.slice(0, path.lastIndexOf('/'))
