import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { Log } from '../log.js'
import { rolesOf } from '../model/effective.js'

/** The own roles of a group or a node. */
interface HasRoles {
  readonly roles?: string
}

/** The roles that have no file in `directory`. */
export const withoutFile = (directory: string, roles: readonly string[]): string[] =>
  roles.filter(role => !statSync(join(directory, role), { throwIfNoEntry: false })?.isFile())

/**
 * One sentence for each role that has no file in `directory`, with the first of `users` ("node node001") that names the
 * role. It is a warning only, because a role may be given before its file is there (rules 4.10).
 */
export function missingRoles(directory: string, users: Iterable<readonly [string, HasRoles]>): string[] {
  const first = new Map<string, string>()
  for (const [user, { roles = null }] of users)
    for (const role of rolesOf({ roles })) if (!first.has(role)) first.set(role, user)
  return withoutFile(directory, [...first.keys()]).map(
    role => `${first.get(role)} has the role ${role}, and there is no file ${join(directory, role)}`
  )
}

/** Warns of roles without a file that a change has given to groups or nodes. */
export function warnOfRoles(
  directory: string,
  changes: readonly { type: string; name: string; before: object | undefined; after: object | undefined }[],
  log: Pick<Log, 'warn'>
): void {
  const changed = changes.filter(
    ({ type, before, after }) =>
      (type === 'group' || type === 'node') &&
      (before as HasRoles | undefined)?.roles !== (after as HasRoles | undefined)?.roles
  )
  const users = changed.map(({ type, name, after }) => [`${type} ${name}`, after ?? {}] as const)
  for (const warning of missingRoles(directory, users)) log.warn(warning)
}
