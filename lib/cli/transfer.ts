import { createReadStream, existsSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { Tokens } from '../auth/tokens.js'
import type { Config } from '../config/types.js'
import { isWildcard } from '../config/values.js'

/** Prints everything that is configured, as the running daemon exports it. Throws Error when it cannot. */
export async function exportTo(config: Config, out: NodeJS.WritableStream): Promise<void> {
  const document = await ask(config, 'GET', '/config/cluster/export')
  // The program ends after this, and what a pipe has not taken by then would be lost.
  await new Promise<void>((resolve, reject) => {
    out.write(document, error => (error ? reject(error) : resolve()))
  })
}

/** Imports a document (`-`: standard input) into the running daemon; what it says of it. */
export async function importFrom(config: Config, file: string): Promise<string> {
  const document = await buffer(file === '-' ? process.stdin : createReadStream(file))
  return messageOf(await ask(config, 'POST', '/config/cluster/import', document))
}

const messageOf = (body: Buffer) =>
  String((JSON.parse(body.toString('utf8')) as { message?: unknown }).message)

/** Asks the daemon as an admin: who can read the key of its tokens is one. */
async function ask(config: Config, method: string, path: string, body?: Buffer): Promise<Buffer> {
  const { address, port } = config.http.listen
  const host = isWildcard(address) ? (address.includes(':') ? '::1' : '127.0.0.1') : address
  // Asking makes no key: it would be this user's, where the daemon's is wanted.
  if (!existsSync(join(config.paths.state, 'token.key')))
    throw new Error(`${config.paths.state}: no svcd has been started on this state directory`)
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
  if (status >= 400) throw new Error(`${path}: ${messageOf(answer)}`)
  return answer
}
