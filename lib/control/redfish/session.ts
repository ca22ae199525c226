import type { JsonObject } from '../../json.js'
import type { Bmc } from '../bmc.js'
import { type Connection, isPath, linkOf, objectAt, textAt, wordsOf } from './connection.js'

/** A login, and how it is ended. */
export interface Session {
  readonly root: JsonObject
  logout(signal: AbortSignal): Promise<void>
}

/**
 * Logs in to a service (DSP0266, "Authentication"): with a session, or with basic authentication where the service has no
 * sessions. Throws an Error that says what the service refuses.
 */
export async function login(connection: Connection, bmc: Bmc, signal: AbortSignal): Promise<Session> {
  const root = await connection.get('/redfish/v1/', signal)
  const sessions = linkOf(objectAt(root, 'Links').Sessions)
  if (sessions === undefined) return basic(connection, bmc, root)
  const credentials = { UserName: bmc.username, Password: bmc.password }
  const { status, headers, body } = await connection.send('POST', sessions, signal, credentials)
  if (status === 404 || status === 405 || status === 501) return basic(connection, bmc, root)
  if (status < 200 || status > 299) {
    const words = wordsOf(body)
    const why = `${status}${words === '' ? '' : `: ${words}`}`
    throw new Error(`refuses the user name or the password of BMC set-up ${bmc.setup} (${why})`)
  }
  const token = headers['x-auth-token']
  // It goes into a header of ours.
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,4096}$/.test(token))
    throw new Error('gives a session without a token')
  connection.credentials = { 'X-Auth-Token': token }
  const place = pathOf(headers.location) ?? pathOf(textAt(body, '@odata.id'))
  return {
    root,
    logout: async signal => {
      if (place !== undefined) await connection.send('DELETE', place, signal)
    }
  }
}

function basic(connection: Connection, { username, password }: Bmc, root: JsonObject): Session {
  const both = Buffer.from(`${username}:${password}`).toString('base64')
  connection.credentials = { Authorization: `Basic ${both}` }
  return { root, logout: async () => {} }
}

/** The path of a session; some services tell a whole URL, whose host is not looked at. */
function pathOf(location: string | undefined): string | undefined {
  const path = location?.replace(/^https?:\/\/[^/]+/, '')
  return path !== undefined && isPath(path) ? path : undefined
}
