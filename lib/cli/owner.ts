import { execFile } from 'node:child_process'
import { accessSync, constants, readdirSync } from 'node:fs'
import { lstat, readdir, readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { isDirectoryOfState, isMade, isStored } from '../backup/state-names.js'
import type { Config } from '../config/types.js'
import { isMissing, unlessMissing } from '../disk/file.js'
import { nameOf } from '../disk/printable.js'

const handOver = fileURLToPath(new URL('../../libexec/hand-over.sh', import.meta.url))

/** What root types to give the state and the files to a user. */
export const handOverCommand = ({ paths, image }: Pick<Config, 'paths' | 'image'>, user: string): string =>
  ['sh', handOver, paths.state, paths.files, image.directory, user].join(' ')

/** Whose state it is, by which path of it that is seen, and the command that gives it to that user as a whole. */
export interface Foreign {
  readonly path: string
  readonly user: string
  readonly wayOut: string
}

/**
 * Throws Error with the command to type when svcd is not root and the state is another user's in whole or in part, as
 * that of a svcd that ran as root: it could read it in parts, and write less (rules 11.10). Root may use any; for root on
 * the state of another user, resolves to who that is, and what to type where svcd is to run as that user.
 */
export async function checkOwner({
  paths,
  image
}: Pick<Config, 'paths' | 'image'>): Promise<Foreign | undefined> {
  const uid = process.getuid?.() ?? 0
  const ownerOf = async (path: string) => (await unlessMissing(lstat(path), undefined))?.uid ?? uid
  const commandFor = (user: string) => handOverCommand({ paths, image }, user)
  const refused = async (path: string) => {
    const what = `${path} belongs to user ${await ownerOf(path)}, and svcd runs as user ${uid}`
    return new Error(`${what}: stop svcd on this machine and type, as root: ${commandFor(await nameOf(uid))}`)
  }
  const names = await unlessMissing(readdir(paths.state), []).catch(async () => {
    throw await refused(paths.state)
  })
  for (const name of names.filter(isMade)) {
    const path = join(paths.state, name)
    const owner = await ownerOf(path)
    if (owner !== uid && uid === 0) {
      const user = await nameOf(owner)
      return { path, user, wayOut: commandFor(user) }
    }
    const foreign = owner === uid ? closedIn(path, isDirectoryOfState(name)) : path
    if (foreign !== undefined && (await ownerOf(foreign)) !== uid) throw await refused(foreign)
  }
  return undefined
}

/** The first file in a directory that this process may not read. Synchronous as loading is: there may be 100,000. */
function closedIn(path: string, isDirectory: boolean): string | undefined {
  try {
    return isDirectory
      ? readdirSync(path)
          // Not join: it would take longer than to ask for the file.
          .map(name => `${path}/${name}`)
          .find(isClosed)
      : undefined
  } catch {
    // Who loads it says what is wrong with it.
    return undefined
  }
}

function isClosed(path: string): boolean {
  try {
    accessSync(path, constants.R_OK)
    return false
  } catch (error) {
    return !isMissing(error)
  }
}

/** Where systemd looks for the unit: the admin's, then the one that was installed with this program. */
const places = [
  '/etc/systemd/system',
  fileURLToPath(new URL('../../../systemd/system', import.meta.url))
].map(directory => join(directory, 'svcd.service'))

/** Whom systemd runs svcd as. */
export interface UnitUser {
  readonly user: string
  readonly uid: number
  /** The number of its first group. */
  readonly gid: number
  /** All its groups, and those that the unit adds: numbers and names, with commas. */
  readonly groups: string
  /** The file of the unit. */
  readonly unit: string
}

/**
 * The user that the unit of svcd names, if there is a unit, it uses this ini, and the user is not root. Throws Error if
 * there is no such user.
 */
export async function unitUser(ini: string): Promise<UnitUser | undefined> {
  for (const unit of places) {
    const text = await unlessMissing(readFile(unit, 'utf8'), undefined)
    if (text === undefined) continue
    const command = lastOf(text, 'ExecStart').split(/\s+/)
    const user = lastOf(text, 'User')
    const isOurs = resolve(command[command.indexOf('--config') + 1] ?? '') === resolve(ini)
    if (!isOurs || !/^[A-Za-z_0-9][\w.-]*$/.test(user) || user === 'root' || user === '0') return undefined
    const idOf = async (what: '-u' | '-g' | '-G') => {
      const { stdout } = await promisify(execFile)('id', [what, '--', user]).catch(() => {
        throw new Error(`${unit} names user ${user}, whom this machine does not know; type: systemd-sysusers`)
      })
      return stdout.trim()
    }
    const [uid, gid, own] = [await idOf('-u'), await idOf('-g'), await idOf('-G')]
    const groups = `${own} ${lastOf(text, 'SupplementaryGroups')}`.trim().split(/\s+/).join(',')
    return { user, uid: Number(uid), gid: Number(gid), groups, unit }
  }
  return undefined
}

const lastOf = (text: string, key: string) =>
  [...text.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].at(-1)?.[1]?.trim() ?? ''

/** What root types to move the directories of objects, and them alone, from a state directory to one beside it; `suffix` ends its name. */
export async function objectsAside(state: string, suffix: string): Promise<string> {
  const names = (await readdir(state)).filter(isStored).sort()
  const to = `${state}.${suffix}`
  return `mkdir -m 0700 ${to} && (cd ${state} && mv -t ${to} ${names.join(' ')})`
}
