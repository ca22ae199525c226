import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { unlessMissing } from '../disk/missing.js'

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
