import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { exists } from '../disk/file.js'
import { boundToUs, withoutInherited } from '../program/program.js'
import { Helper } from './client.js'
import { CHILD, SOCKET, STANDARD } from './messages.js'
import type { Work } from './work.js'

/** A helper of systemd's ends by itself; one of our own ends with its connection. */
const SOCKET_IDLE_MS = 1000
const CHILD_IDLE_MS = 60_000

/**
 * Who does root's work for this process: the helper at the socket that the ini names, else a child process where this one
 * is root, started by `command` when it is first needed, else the helper of systemd's, and where its socket is missing, a
 * child again, which has the rights of this process: it does what these suffice for. Where a socket is there, or the ini
 * names one, and nobody listens, each call is unavailable (503) and says what to type.
 */
export function startWork(socket: string, command: readonly string[]): Work {
  if (socket !== '') return new Helper(() => connected(socket), SOCKET_IDLE_MS)
  if (process.getuid?.() === 0) return new Helper(() => child(command), CHILD_IDLE_MS)
  const standardOrChild = async () => ((await exists(STANDARD)) ? connected(STANDARD) : child(command))
  return new Helper(standardOrChild, SOCKET_IDLE_MS)
}

async function connected(path: string): Promise<Duplex> {
  const socket = connect(path)
  await once(socket, 'connect').catch((error: NodeJS.ErrnoException) => {
    throw new Error(
      `${path}: ${error.code}; type "systemctl start svcd-helper.socket", or start svcd as root`
    )
  })
  return socket
}

/** It ends with its socket, and so with this process. The keyboard's signals are not for it. */
async function child(command: readonly string[]): Promise<Duplex> {
  const [program = '', ...words] = command
  const [file, args] = await boundToUs(program, words)
  const { NODE_OPTIONS, PATH, HOME } = process.env
  const env = { PATH, HOME, [CHILD]: '1', ...(NODE_OPTIONS === undefined ? {} : { NODE_OPTIONS }) }
  const stdio = withoutInherited(['ignore', 'inherit', 'inherit', 'pipe'])
  const started = spawn(file, args, { env, detached: true, stdio })
  await once(started, 'spawn')
  return started.stdio[SOCKET] as Duplex
}
