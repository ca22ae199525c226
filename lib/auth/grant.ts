import { ValueError } from '../model/field.js'
import { isObjectName, objectNameRule } from '../model/names.js'

/** Roles of users and of tokens, from the strongest on (rules 5.2). */
export const roles = ['admin', 'operator', 'viewer'] as const
export type Role = (typeof roles)[number]

/** Most groups of a grant: its text stands in a token, which goes with each request. */
const mostGroups = 32

/** The rights of a user or a token: a role, and the groups of nodes that it is limited to; absent: all. */
export interface Grant {
  readonly role: Role
  readonly groups?: readonly string[]
}

/** Where a login was verified: the `[users]` of the ini, or outside of it. */
export type LoginSource = 'local' | 'ldap' | 'oidc'
/** The sources of logins. */
export const loginSources: readonly LoginSource[] = ['local', 'ldap', 'oidc']

/** A verified login. `ldap` and `oidc` may have a user of the same name as the ini: another person. */
export interface Login {
  /** At most 256 characters. */
  readonly user: string
  readonly grant: Grant
  readonly source: LoginSource
}

/** How a grant is written, for the end of a sentence. */
export const grantRule =
  'admin, operator or viewer, the last two also limited to groups (operator:compute,gpu)'

/** Reads a grant: `operator`, `viewer:compute,gpu`. Throws ValueError, which begins with a verb. */
export function parseGrant(text: string): Grant {
  const colon = text.indexOf(':')
  const [word, list] = colon < 0 ? [text] : [text.slice(0, colon), text.slice(colon + 1)]
  const role = roles.find(known => known === word)
  if (role === undefined) throw new ValueError(`must be ${grantRule}`)
  return list === undefined ? { role } : limited(role, list.split(','))
}

/** Returns the text that `parseGrant` reads. */
export const grantText = ({ role, groups }: Grant): string => (groups ? `${role}:${groups.join(',')}` : role)

function limited(role: Role, given: readonly string[]): Grant {
  if (role === 'admin')
    throw new ValueError('must not limit admin to groups: an admin may do everything; type operator:GROUP')
  const wrong = given.find(name => !isObjectName(name))
  if (wrong !== undefined)
    throw new ValueError(
      `names the group ${JSON.stringify(wrong.slice(0, 80))}, and a group's name is ${objectNameRule}`
    )
  const groups = [...new Set(given)].sort()
  if (groups.length > mostGroups)
    throw new ValueError(
      `names ${groups.length} groups; ${mostGroups} are the most: leave the groups out for all`
    )
  return { role, groups }
}
