import { existsSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { Tokens } from '../auth/tokens.js'
import type { Config } from '../config/types.js'
import { isWildcard } from '../config/values.js'

/**
 * Asks the daemon as an admin: whoever can read the key of its tokens can make an admin's token. Throws Error
 * where none answers, and with its message when it refuses.
 */
export async function askDaemon(
  config: Config,
  method: string,
  path: string,
  body?: Buffer
): Promise<Buffer> {
  const { address, port } = config.http.listen
  const host = isWildcard(address) ? (address.includes(':') ? '::1' : '127.0.0.1') : address
  // A missing key is not made here: it would belong to this user, not to the daemon.
  if (!existsSync(join(config.paths.state, 'token.key'))) throw new Error(notStarted(config.paths.state))
  const tokens = await Tokens.open(config.paths.state, {
    now: Date.now,
    lifetimeMs: 60_000,
    nodeLifetimeMs: 60_000
  })
  const admin = config.users.length === 0 ? 'admin' : config.users.find(({ role }) => role === 'admin')?.name
  if (admin === undefined) throw new Error(`${config.file}: [users] names no admin`)
  const { status, answer } = await new Promise<{ status: number; answer: Buffer }>((resolve, reject) => {
    const headers = { 'x-access-tokens': tokens.issueUser(admin, 'admin') }
    const outgoing = request({ host, port, method, path, headers }, incoming => {
      buffer(incoming).then(answer => resolve({ status: incoming.statusCode ?? 0, answer }), reject)
    })
    outgoing.on('error', error =>
      reject(new Error(`no svcd answers at ${host} port ${port}: ${error.message}`))
    )
    outgoing.end(body)
  })
  if (status >= 400) throw new Error(messageOf(answer))
  return answer
}

/** The `message` of an answer. */
export const messageOf = (body: Buffer) =>
  String((JSON.parse(body.toString('utf8')) as { message?: unknown }).message)

/** Says that a command was pointed at a state directory without a state, and what is most often the reason. */
export const notStarted = (state: string): string =>
  `${state}: no svcd has been started on this state directory; one that was started with --config or --set needs the ` +
  'same options here'
