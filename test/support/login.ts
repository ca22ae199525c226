import { type Login, parseGrant } from '../../lib/auth/grant.js'

/** The login of a user of the ini, with a grant as the ini writes it. */
export const local = (user: string, grant: string): Login => ({
  user,
  grant: parseGrant(grant),
  source: 'local'
})
