import { refuseForeignPage } from '../auth/access.js'
import { unauthorized } from '../base/errors.js'
import { type FieldType, freeText, ValueError } from '../model/field.js'
import { version } from '../version.js'
import { type ApiRoute, ok, type Parts } from './context.js'
import { bodyOf, get, post } from './row.js'
import { object, standing, string } from './schema.js'

/** Takes any text: one that is no user's password is a wrong password (401), not a bad request. */
const credential: FieldType<string> = {
  ...freeText,
  read: value => {
    // Without the value: it may be a password.
    if (typeof value !== 'string') throw new ValueError('must be a string')
    return value
  }
}

const credentials = bodyOf(
  { about: 'token' },
  {
    username: { type: credential, required: true, meaning: 'a user of the ini' },
    // Not marked `secret`: the mask ******** would count as unchanged, but may be somebody's password.
    password: { type: credential, required: true, meaning: 'the password of this user' }
  }
)

/** Token and version (rules 5.1, 6.4, 11.15). */
export function tokenRoutes({ logins, tokens, site }: Parts): ApiRoute[] {
  return [
    post('/token', {
      access: 'anyone',
      answers: [201],
      refuses: [401, 403],
      summary: 'A token for a user name and a password',
      body: credentials,
      maxBody: 8192,
      output: object({ token: string() }, ['token']),
      handler: async ({ source, headers }, { username, password }) => {
        refuseForeignPage(headers)
        const login = await logins.login(username, password, source.address)
        if (!login) throw unauthorized('user name or password is wrong', 'wrong-password')
        return { status: 201, body: { token: tokens.issueUser(login) } }
      }
    }),
    get('/version', {
      access: 'anyone',
      summary: 'Version of the service and of this interface',
      output: object(
        {
          version: object({ service: string(), api: { type: 'integer' }, commit: string() }, [
            'service',
            'api',
            'commit'
          ]),
          controller: standing
        },
        ['version']
      ),
      handler: () => ok({ version, ...(site ? { controller: site.status } : {}) })
    })
  ]
}
