import type { Grant } from '../auth/grant.js'
import type { GroupRole } from '../config/values.js'

/** Returns the grant of the first group that the user is in; admin goes before all others. */
export function grantBy(roles: readonly GroupRole[], isIn: (group: string) => boolean): Grant | undefined {
  const matching = roles.filter(({ group }) => group === '*' || isIn(group)).map(({ grant }) => grant)
  return matching.find(({ role }) => role === 'admin') ?? matching[0]
}

/** Whether a name can stand in logs and tokens. */
export const isUserName = (name: string) => name.trim() !== '' && name.length <= 256 && !/\p{Cc}/u.test(name)
