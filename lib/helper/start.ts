import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { unavailable } from '../errors.js'
import { boundToUs } from '../program/bound.js'
import { withoutInherited } from '../program/inherited.js'
import { Helper } from './client.js'
import { CHILD, SOCKET } from './messages.js'
import type { Work } from './work.js'

/** A helper of systemd's ends by itself; one of our own ends with its connection. */
const SOCKET_IDLE_MS = 1000
const CHILD_IDLE_MS = 60_000

/**
 * Who does root's work for this process: the helper at the socket that the ini names; a child process where this one is
 * root, started by `command` when it is first needed; otherwise nobody, and each call says what is lacking.
 */
export function startWork(socket: string, command: readonly string[]): Work {
  if (socket !== '') return new Helper(() => connected(socket), SOCKET_IDLE_MS)
  if (process.getuid?.() === 0) return new Helper(() => child(command), CHILD_IDLE_MS)
  return {
    call: async () => {
      throw unavailable(
        "packs, clones, grabs, pushes and removals of images need root's work: start svcd-helper.socket and name its " +
          'socket in [image] helper, or start svcd as root'
      )
    },
    close: async () => {}
  }
}

async function connected(path: string): Promise<Duplex> {
  const socket = connect(path)
  await once(socket, 'connect').catch((error: NodeJS.ErrnoException) => {
    throw new Error(
      `${path}: ${error.code}; type "systemctl start svcd-helper.socket", or see [image] helper in svcd.ini`
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
