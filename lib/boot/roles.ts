import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { Log } from '../base/log.js'
import { rolesOf } from '../model/effective.js'

/** Roles set on a group or node itself. */
interface HasRoles {
  readonly roles?: string
}

/** Returns the roles that have no file in `directory`. */
export const withoutFile = (directory: string, roles: readonly string[]): string[] =>
  roles.filter(role => !statSync(join(directory, role), { throwIfNoEntry: false })?.isFile())

/**
 * Returns a warning for each role that has no file in `directory`, with the first of `users` ("node node001")
 * that names it. Only a warning, because a role may be assigned before its file exists (rules 4.10).
 */
export function missingRoles(directory: string, users: Iterable<readonly [string, HasRoles]>): string[] {
  const first = new Map<string, string>()
  for (const [user, { roles = null }] of users)
    for (const role of rolesOf({ roles })) if (!first.has(role)) first.set(role, user)
  return withoutFile(directory, [...first.keys()]).map(
    role => `${first.get(role)} has the role ${role}, and there is no file ${join(directory, role)}`
  )
}

/** Warns about roles without a file that a change assigned to groups or nodes. */
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
