import { link, lstat, rm } from 'node:fs/promises'
import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { clocksApart, SLACK_MS } from '../client/controllers.js'
import type { Config } from '../config/types.js'
import { createOnce, exists, readRegularFile, unlessMissing } from '../disk/file.js'
import { kinds } from '../model/types.js'
import { startAttached } from '../program/held-program.js'
import { nameOf, tryLockDirectory } from '../program/system.js'
import { FileMedium } from '../store/files/medium.js'
import type { Controller } from '../store/medium.js'
import type { Owner } from './config-files.js'
import { handOverCommand, objectsAside, unitUser } from './owner.js'
import { UsageError } from './usage.js'

/** svcd does not start beside other controllers without these. */
const KEYS = ['token.key', 'secret.key'] as const
/** It exists while the ini names no users. */
const PASSWORD = 'admin-password'
/** The keys come last, since svcd does not start beside others without them. */
const SHARED = [PASSWORD, ...KEYS]
const NAMES = [...KEYS, PASSWORD].join(', ')

const KEY_BYTES = 32
const MOST_PASSWORD = 1000
const MOST_OUTPUT = 64 * 1024

interface JoinFiles {
  readonly where: string
  readonly files: ReadonlyMap<string, Buffer>
  /** By how much the other clock is ahead; undefined: unknown. */
  readonly aheadMs: number | undefined
}

/** Reads the files of a directory that are there. */
async function filesIn(directory: string): Promise<Map<string, Buffer>> {
  const found = new Map<string, Buffer>()
  for (const name of SHARED) {
    const bytes = await unlessMissing(readRegularFile(join(directory, name)), undefined)
    if (bytes) found.set(name, bytes)
  }
  return found
}

const CLOSED = 41
const UNREADABLE = 42
const LINK = 43
const SSH_FAILED = 255

/**
 * The remote command, for any shell. The directory comes by standard input, so nothing needs quoting. The
 * files are sent in base64, so a terminal cannot change them, and they never appear in a process list.
 */
const SCRIPT =
  `sh -c 'IFS= read -r directory; cd "$directory" || exit ${CLOSED}; date +%s; for name in ` +
  `${[...KEYS, PASSWORD].join(' ')}; do test -e "$name" || continue; test -h "$name" && exit ${LINK}; ` +
  `printf "%s " "$name"; base64 -w 0 <"$name" || exit ${UNREADABLE}; echo; done'`

/** Parses `[USER@]HOST[:DIRECTORY]`, no part of which can be an option or shell code. Throws UsageError. */
function overSsh(source: string, usual: string): () => Promise<JoinFiles> {
  const parts =
    /^(?:([A-Za-z0-9_][\w.-]*)@)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?))(?::(\/[^\0\n]*))?$/.exec(
      source
    )
  const [, user, bracketed, name, directory = usual] = parts ?? []
  const host = bracketed ?? name
  if (host === undefined || (bracketed !== undefined && !isIPv6(bracketed)))
    throw new UsageError(
      'join takes [USER@]HOST[:/STATE-DIRECTORY] of a controller, or a directory with its files ' +
        '(svcd join /media/keys)'
    )
  return () => readBySsh(user === undefined ? host : `${user}@${host}`, directory)
}

async function readBySsh(host: string, directory: string): Promise<JoinFiles> {
  const where = `${host}:${directory}`
  const options = ['-T', '-oConnectTimeout=10', '-oServerAliveInterval=5', '-oClearAllForwardings=yes']
  // ssh asks for passwords and host keys on the terminal and prints its own messages.
  const streams = ['pipe', 'pipe', 'inherit'] as const
  const { child, ended } = startAttached('ssh', [...options, '--', host, SCRIPT], streams)
  child.stdin?.on('error', () => {}) // it has ended, and says why
  child.stdin?.end(`${directory}\n`)
  let said = ''
  let firstMs: number | undefined
  child.stdout?.setEncoding('latin1').on('data', (text: string) => {
    // The first output is the remote time, sent after all questions were answered.
    firstMs ??= Date.now()
    said += text
    if (said.length > MOST_OUTPUT) child.kill()
  })
  const code = await ended.catch(({ message }: Error) => {
    throw new Error(`ssh cannot be started: ${message}`)
  })
  if (code === CLOSED)
    throw new Error(`${where}: there is no such directory, or ${host} may not enter it; ${AS_ROOT}`)
  if (code === UNREADABLE) throw new Error(`${where}: the keys may not be read; ${AS_ROOT}`)
  // Root must not follow a link that the daemon's user made.
  if (code === LINK) throw new Error(`${where}: one of ${NAMES} is a link, and is not followed. ${BY_HAND}`)
  if (code === SSH_FAILED)
    throw new Error(`${host} is not reached by ssh; its own words are above. ${BY_HAND}`)
  const [time = '', ...lines] = said.split('\n')
  if (code !== 0 || firstMs === undefined || !/^\d{1,12}$/.test(time))
    throw new Error(`${where} does not answer as a machine with svcd does (status ${code}); ${BY_HAND}`)
  const files = new Map(
    lines.flatMap(line => {
      const [name = '', base64 = ''] = line.split(' ')
      return line === '' ? [] : [[name, Buffer.from(base64, 'base64')] as const]
    })
  )
  return { where, files, aheadMs: Number(time) * 1000 - firstMs }
}

const AS_ROOT = 'name root, or the user that has them: svcd join root@HOST:/STATE-DIRECTORY'
const BY_HAND = `Or carry ${NAMES} here by hand, and type: svcd join /DIRECTORY`

/** Throws Error for a missing or damaged file, and for a clock on which tokens and proofs would fail. */
function refuseUnusable({ where, files, aheadMs = 0 }: JoinFiles): void {
  for (const name of KEYS) {
    const key = files.get(name)
    if (!key)
      throw new Error(
        `${where}: there is no ${name}: that is no state directory of a controller that has been started`
      )
    if (key.length !== KEY_BYTES || key.every(byte => byte === key[0]))
      throw new Error(`${where}: ${name} is damaged; name another controller`)
  }
  const password = files.get(PASSWORD)
  if (password && (password.length > MOST_PASSWORD || !/^[\x21-\x7e]+\r?\n?$/.test(password.toString())))
    throw new Error(`${where}: ${PASSWORD} holds no password; name another controller`)
  if (Math.abs(aheadMs) > SLACK_MS) throw new Error(clocksApart('this machine', where, aheadMs))
}

/**
 * Joins this controller to those that share objects in etcd: copies the shared files that are missing from
 * `source`, `[USER@]HOST[:DIRECTORY]` by ssh or a local directory. Returns what was done and what to do next.
 * Throws UsageError, or Error with the way out; no file is then written in part.
 */
export async function joinControllers(config: Config, source: string): Promise<string> {
  const { state } = config.paths
  const give = source.startsWith('/')
    ? async () => ({ where: source, files: await filesIn(source), aheadMs: undefined })
    : overSsh(source, state)
  if (config.store.medium !== 'etcd')
    throw new Error(
      `${config.file}: [store] medium = ${config.store.medium}: who joins has the objects in etcd; give ` +
        'this controller the [store] of the others first, and a [controller] name of its own'
    )
  const owner = await ownerOf(config)
  const { openEtcd } = await import('../store/etcd/open.js')
  const etcd = await openEtcd(config.store)
  try {
    const { hasObjects, controllers, compared } = await etcd.site()
    if (!hasObjects)
      throw new Error(`${etcd.place()} holds no objects: there is nobody to join; start svcd here by itself`)
    refuseTakenName(config, controllers)
    const there = await filesIn(state)
    const own = compared(there)
    const keysOnly = await refuseOwn(state, own.others, there.has(PASSWORD), etcd.place())
    for (const name of keysOnly) there.delete(name)
    const isComplete = KEYS.every(name => own.alike.includes(name))
    if (isComplete && (there.has(PASSWORD) || config.users.length > 0))
      return `${state} has all that the other controllers have: nothing is copied\n${nextSteps(config)}`
    const given = await give()
    refuseUnusable(given)
    refuseForeign(given.where, compared(given.files), etcd.place())
    const differ = SHARED.filter(name => isOther(there.get(name), given.files.get(name)))
    if (differ.length > 0)
      throw new Error(
        `${pathsOf(state, differ)} differ from those of ${given.where}; ${aside(moved(state, differ))}`
      )
    const missing = SHARED.filter(name => given.files.has(name) && !there.has(name))
    const kept: string[] = []
    await asUser(owner, async () => {
      const release = keysOnly.length > 0 ? await tryLockDirectory(state) : async () => {}
      if (!release)
        throw new Error(
          `svcd is running on ${state}: stop it first (systemctl stop svcd); nothing is changed`
        )
      try {
        for (const name of keysOnly) kept.push(await keptAside(state, name))
        for (const name of missing)
          if (!(await createOnce(join(state, name), given.files.get(name) as Buffer)))
            throw new Error(
              `another program has made ${join(state, name)} meanwhile; type this command again`
            )
      } finally {
        await release()
      }
    }).catch(async (error: NodeJS.ErrnoException) => {
      if (kept.length > 0) error.message += `; kept aside: ${kept.join(', ')}; type this command again`
      if (error.code !== 'EACCES') throw error
      const user = await nameOf(owner.uid)
      throw new Error(
        `user ${user} may not write in ${state}; type, as root, while svcd is stopped: ` +
          `${handOverCommand(config, user)}, and this command again`
      )
    })
    const copied = missing.length === 0 ? 'nothing' : missing.join(', ')
    const note = 'note: the clocks were not compared; they may be 60 s apart at most\n'
    const unknown = given.aheadMs === undefined ? note : ''
    const before = kept.map(path => `kept aside: ${path}\n`).join('')
    return `${before}copied from ${given.where} to ${state}: ${copied}\n${unknown}${nextSteps(config)}`
  } finally {
    await etcd.close()
  }
}

/** Throws Error for keys that are not those of the controllers, or cannot be compared with them. */
function refuseForeign(
  where: string,
  { alike, others }: { alike: readonly string[]; others: readonly string[] },
  etcd: string
): void {
  if (others.length > 0)
    throw new Error(
      `${where}: ${others.join(' and ')} ${areNot(others)} of the controllers that write to ${etcd}; name ` +
        'another controller'
    )
  if (!KEYS.every(name => alike.includes(name)))
    throw new Error(
      `${etcd} has no marks by which the keys of ${where} could be checked: no svcd has been started on ` +
        'these objects so far; start it on the controller that they come from, and type this command again'
    )
}

const nextSteps = ({ controller }: Config) =>
  'next: svcd check, then systemctl enable svcd && systemctl restart svcd; svcctl cluster show names ' +
  `${controller.name} then\n`

const pathsOf = (state: string, names: readonly string[]) =>
  names.map(name => join(state, name)).join(' and ')
const areNot = (names: readonly string[]) => (names.length > 1 ? 'are not those' : 'is not the one')
const isOther = (own: Buffer | undefined, theirs: Buffer | undefined) =>
  own !== undefined && theirs !== undefined && !own.equals(theirs)

/** Tells how to move files away that differ from those of the other controllers. */
const aside = (commands: readonly string[]) =>
  'nothing is changed; where nobody needs what is there, stop svcd on this machine and type ' +
  `${commands.join(' && ')} and this command again`

const moved = (state: string, names: readonly string[]) =>
  names.map(name => `mv ${join(state, name)} ${join(state, name)}.before-join`)

/** Returns the owner for files of the state: its own, or the unit's user if it belongs to root, or throws. */
async function ownerOf({ paths: { state }, file }: Config): Promise<Owner> {
  const stat = await unlessMissing(lstat(state), undefined)
  if (!stat?.isDirectory()) {
    const { user = 'root', gid = 'root' } = (await unitUser(file)) ?? {}
    throw new Error(
      `there is no directory ${state}, [paths] state; type: install -d -m 0700 -o ${user} -g ${gid} ${state}`
    )
  }
  const uid = process.getuid?.() ?? 0
  if (uid !== 0 && uid !== stat.uid)
    throw new Error(`${state} belongs to user ${await nameOf(stat.uid)}: type svcd join as root`)
  return (stat.uid === 0 && (await unitUser(file))) || stat
}

function refuseTakenName({ controller, file }: Config, controllers: readonly Controller[]): void {
  const { name, address } = controller
  // This controller may be running already. Cloned machines may have the same host name.
  const isThis = (one: Controller) => one.host === hostname() && one.ini === file && one.address === address
  const other = controllers.find(one => one.name === name && !isThis(one))
  if (other)
    throw new Error(
      `${file}: [controller] name = ${name} is that of the controller on ${other.host} (${other.address} ` +
        `port ${other.port}): give this one a name of its own`
    )
}

/** Refuses a state with objects. Returns the files to keep aside: foreign keys (`others`) and password. */
async function refuseOwn(state: string, others: readonly string[], hasPassword: boolean, place: string) {
  const stored = await new FileMedium({ directory: state }).read()
  // The layout and empty directories of a first start do not count.
  const holdsObjects = Object.keys(kinds).some(type => [...stored.names(type)].length > 0)
  const isDamaged = stored.problems().length > 0
  const reasons: string[] = []
  const commands: string[] = []
  if (holdsObjects || isDamaged) {
    reasons.push(`${state} holds objects of its own, which no other controller has`)
    commands.push(await objectsAside(state, 'before-join'))
  }
  // The password first: while a foreign key remains, a second try knows that the password is foreign too.
  const keys = others.length > 0 ? [...(hasPassword ? [PASSWORD] : []), ...others] : []
  if (reasons.length === 0 && !(await exists(join(state, 'objects-in-etcd')))) return keys
  if (others.length > 0) {
    reasons.push(`${pathsOf(state, others)} ${areNot(others)} of the controllers that write to ${place}`)
    commands.push(...moved(state, keys))
  }
  if (reasons.length > 0) throw new Error(`${reasons.join('; ')}; ${aside(commands)}`)
  return keys
}

/** Renames a file to an unused name; returns the new path. */
async function keptAside(state: string, name: string): Promise<string> {
  const from = join(state, name)
  const to = `${from}.before-join${(await exists(`${from}.before-join`)) ? `.${Date.now()}` : ''}`
  await link(from, to)
  await rm(from)
  return to
}

/** Runs work with the rights of a user: in that user's directory, root would follow any link. */
async function asUser<R>({ uid, gid }: Owner, work: () => Promise<R>): Promise<R> {
  const { setegid, seteuid, geteuid, getegid } = process
  if (!setegid || !seteuid || !geteuid || !getegid || geteuid() === uid) return work()
  const before = { uid: geteuid(), gid: getegid() }
  try {
    setegid(gid)
    seteuid(uid)
    return await work()
  } finally {
    seteuid(before.uid)
    setegid(before.gid)
  }
}
