import { badRequest, unauthorized } from '../errors.js'
import type { JsonObject } from '../json.js'
import { version } from '../version.js'
import { type ApiRoute, type Parts, smallBody } from './context.js'
import { shapes } from './shapes.js'

/** Token and version (rules 5.1, 6.4). */
export function accessRoutes({ logins, tokens }: Parts): ApiRoute[] {
  return [
    {
      method: 'POST',
      path: '/token',
      effect: 'changes',
      access: 'anyone',
      body: 'json',
      codes: [201, 400, 401, 503],
      summary: 'A token for a user name and a password',
      maxBody: smallBody,
      input: shapes.credentials,
      output: shapes.token,
      handler: async request => {
        const { username, password } = credentials(request.body)
        const user = await logins.login(username, password, request.source.address)
        if (!user) throw unauthorized('user name or password is wrong')
        return { status: 201, body: { token: tokens.issueUser(user.user, user.role) } }
      }
    },
    {
      method: 'GET',
      path: '/version',
      effect: 'reads',
      access: 'anyone',
      body: 'ignored',
      codes: [200, 503],
      summary: 'Version of the service and of this interface',
      output: shapes.version,
      handler: () => ({ status: 200, body: { version } })
    }
  ]
}

function credentials(body: unknown): { username: string; password: string } {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw badRequest('token: the body must be an object with "username" and "password"')
  const given = body as JsonObject
  for (const key of Object.keys(given))
    if (key !== 'username' && key !== 'password') throw badRequest(`token: there is no field "${key}"`)
  const { username, password } = given
  if (typeof username !== 'string') throw badRequest('token: field "username" must be a string')
  if (typeof password !== 'string') throw badRequest('token: field "password" must be a string')
  return { username, password }
}
