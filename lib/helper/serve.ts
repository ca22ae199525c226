import { once } from 'node:events'
import { createServer, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../base/errors.js'
import type { Config } from '../config/types.js'
import { type HelperSettings, helperSettingsOf } from './directories.js'
import { runCommand } from './local.js'
import {
  CHILD_VARIABLE,
  type HelperReport,
  type HelperRequest,
  receive,
  SOCKET_FD,
  send
} from './messages.js'

/** Concurrent tasks; svcd itself starts far fewer. */
const MOST_AT_ONCE = 100
const IDLE_MS = 60_000
/** Reported lines of a task, and characters of each; svcd stores fewer (jobs/entry.ts). */
const MOST_LINES = 10_000
const LONGEST_LINE = 4096
const REST_MS = 10

/** Serves orders until the socket closes, then stops all tasks. Resolves when they have ended. */
export async function serveSocket(socket: Duplex, places: HelperSettings): Promise<void> {
  const running = new Map<number, { readonly stop: AbortController; readonly done: Promise<void> }>()
  const tell = reporter(socket)
  let resting: Promise<unknown> | undefined
  /** Slows down a program whose further lines are dropped. */
  const rest = () => {
    resting ??= sleep(REST_MS).finally(() => {
      resting = undefined
    })
    return resting
  }
  const performed = async (
    order: Extract<HelperRequest, { command: string }>,
    { signal }: AbortController
  ) => {
    const { id, command, args, timeLimitMs } = order
    let lines = 0
    let told = 0
    try {
      if (timeLimitMs !== undefined && !(Number.isInteger(timeLimitMs) && timeLimitMs > 0))
        throw new Error('the time limit must be a positive number of milliseconds')
      const result = await runCommand(places, command, args, {
        signal,
        ...(timeLimitMs === undefined ? {} : { timeLimitMs }),
        line: line => {
          lines++
          if (lines > MOST_LINES) return rest()
          const text = lines < MOST_LINES ? line.slice(0, LONGEST_LINE) : 'what it says further is left out'
          return tell({ id, line: text })
        },
        progress: progress => {
          // svcd stores no more digits.
          if (progress - told < 0.001) return
          told = progress
          return tell({ id, progress })
        },
        change: change => tell({ id, change: change.slice(0, 2 * LONGEST_LINE) })
      })
      send(socket, { id, result: result ?? null })
    } catch (error) {
      const status = error instanceof ServiceError ? { status: error.status, code: error.code } : {}
      send(socket, { id, error: explained(error as Error, places), ...status })
    } finally {
      running.delete(id)
    }
  }
  socket.on('error', () => {})
  receive<HelperRequest>(socket, order => {
    const { id } = order
    if ('stop' in order) running.get(id)?.stop.abort()
    else if (running.has(id) || running.size >= MOST_AT_ONCE)
      send(socket, { id, error: 'too many pieces of work at once' })
    else {
      const stop = new AbortController()
      running.set(id, { stop, done: performed(order, stop) })
    }
  })
  if (!socket.closed) await once(socket, 'close').catch(() => {})
  for (const { stop } of running.values()) stop.abort()
  await Promise.all([...running.values()].map(({ done }) => done))
}

/** Returns a function that sends a report. While the socket is full, the program waits. */
function reporter(socket: Duplex): (report: HelperReport) => Promise<unknown> | undefined {
  let draining: Promise<unknown> | undefined
  return report => {
    send(socket, report)
    if (!socket.writableNeedDrain) return undefined
    const over = new AbortController()
    draining ??= Promise.race(['drain', 'close'].map(event => once(socket, event, over)))
      .catch(() => {})
      .finally(() => {
        draining = undefined
        over.abort()
      })
    return draining
  }
}

/** Explains a file system that only the unit makes read-only (docs/security.md). */
const explained = ({ message }: Error, { images }: HelperSettings): string =>
  /EROFS|Read-only file system/.test(message)
    ? `${message}: the unit may show [image] directory ${images} read-only; type systemctl edit ` +
      `svcd-helper.service, and in [Service] ReadWritePaths=${images}`
    : message

/** Runs the helper until it was idle for a minute, or svcd's socket closes. Throws Error without a socket. */
export async function serveHelper(config: Pick<Config, 'image' | 'paths' | 'ssh'>, units: readonly string[]) {
  // The process that started it has the same rights.
  if (process.env[CHILD_VARIABLE] !== undefined)
    return serveSocket(new Socket({ fd: SOCKET_FD }), helperSettingsOf(config, true, units))
  if (Number(process.env.LISTEN_PID) !== process.pid || process.env.LISTEN_FDS !== '1')
    throw new Error('svcd helper is started by systemd (svcd-helper.socket), or by svcd serve')
  const places = helperSettingsOf(config, false, units)
  const server = createServer()
  let connected = 0
  let timer: NodeJS.Timeout | undefined
  const rest = () => {
    timer = setTimeout(() => server.close(), IDLE_MS)
  }
  server.on('connection', async socket => {
    clearTimeout(timer)
    connected++
    await serveSocket(socket, places)
    connected--
    if (connected === 0) rest()
  })
  // The wait below ends with the first error.
  server.on('error', () => {})
  const closed = once(server, 'close')
  server.listen({ fd: SOCKET_FD })
  rest()
  await closed
}
