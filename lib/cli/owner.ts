import { accessSync, constants, readdirSync } from 'node:fs'
import { lstat, readdir, readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isDirectoryOfState, isOwnEntry, isStored } from '../backup/state-names.js'
import type { Config } from '../config/types.js'
import { isMissing, unlessMissing } from '../disk/file.js'
import { run } from '../program/program.js'
import { nameOf } from '../program/system.js'

const handOver = fileURLToPath(new URL('../../libexec/hand-over.sh', import.meta.url))

/** Returns the command by which root gives the state and the files to a user. */
export const handOverCommand = ({ paths, image }: Pick<Config, 'paths' | 'image'>, user: string): string =>
  ['sh', handOver, paths.state, paths.files, image.directory, user].join(' ')

/**
 * Throws Error with the command to type if svcd is not root and some of the state belongs to another user, as
 * after a run as root (rules 11.10). Root may use any state: returns a path and its user, if another one.
 */
export async function checkOwner({ paths, image }: Pick<Config, 'paths' | 'image'>) {
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
  for (const name of names.filter(isOwnEntry)) {
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

/** Returns the first unreadable file. Synchronous, as loading is: there may be 100,000 files. */
function closedIn(path: string, isDirectory: boolean): string | undefined {
  try {
    return isDirectory
      ? readdirSync(path)
          // join() would take longer than the access check.
          .map(name => `${path}/${name}`)
          .find(isClosed)
      : undefined
  } catch {
    // The loader reports the problem.
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

/** Where systemd finds the unit: the admin's first, then the installed one. */
const places = [
  '/etc/systemd/system',
  fileURLToPath(new URL('../../../systemd/system', import.meta.url))
].map(directory => join(directory, 'svcd.service'))

/** The user as whom systemd runs svcd. */
export interface UnitUser {
  readonly user: string
  readonly uid: number
  readonly gid: number
  /** All groups of the user and the unit, numbers or names, joined by commas. */
  readonly groups: string
  readonly unit: string
}

/** Returns the unit's user if it uses this ini and is not root. Throws Error if there is no such user. */
export async function unitUser(ini: string): Promise<UnitUser | undefined> {
  for (const unit of places) {
    const text = await unlessMissing(readFile(unit, 'utf8'), undefined)
    if (text === undefined) continue
    const command = lastOf(text, 'ExecStart').split(/\s+/)
    const user = lastOf(text, 'User')
    const isOurs = resolve(command[command.indexOf('--config') + 1] ?? '') === resolve(ini)
    if (!isOurs || !/^[A-Za-z_0-9][\w.-]*$/.test(user) || user === 'root' || user === '0') return undefined
    const idOf = async (what: '-u' | '-g' | '-G') => {
      const { stdout } = await run('id', [what, '--', user], { timeLimitMs: 60_000 }).catch(() => {
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

/** Returns the command that moves the object directories from the state to `STATE.suffix`. */
export async function objectsAside(state: string, suffix: string): Promise<string> {
  const names = (await readdir(state)).filter(isStored).sort()
  const to = `${state}.${suffix}`
  return `mkdir -m 0700 ${to} && (cd ${state} && mv -t ${to} ${names.join(' ')})`
}
