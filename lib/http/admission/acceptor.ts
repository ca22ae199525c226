import { type ChildProcess, fork, type SendHandle } from 'node:child_process'
import { createServer, type Server, type ServerOpts, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import type { Log } from '../../base/log.js'
import { LIMITS } from './limits.js'

/** The load of the event loop is measured after this many connections. */
const LOOK_EVERY = 64
/** An event loop busy for more than this part of the time may not keep up. */
const BUSY = 0.8

/**
 * Accepts several connections per turn of the event loop (rules 2.15). libuv accepts one per descriptor and
 * turn, and a busy loop has few turns a second: connections would wait until the system drops new ones, boot
 * scripts too. So the first time the loop is busy while connections come, the listening socket gets more
 * descriptors.
 */
export class Acceptor {
  readonly #duplicates: Server[] = []
  #accepted = 0
  #since = performance.eventLoopUtilization()
  #child: ChildProcess | undefined
  /** No more descriptors will be made. */
  #done = false
  #isLogged = false
  #closed = false

  /** `options`: the socket options of `server`. */
  constructor(
    private readonly server: Server,
    private readonly options: ServerOpts,
    private readonly log: Log
  ) {
    server.on('connection', () => this.#count())
  }

  #count(): void {
    if (this.#done || ++this.#accepted < LOOK_EVERY) return
    this.#accepted = 0
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, this.#since)
    this.#since = now
    if (utilization < BUSY) return
    this.#done = true
    try {
      this.#duplicate()
    } catch (error) {
      this.#failed((error as Error).message)
    }
  }

  /** Throws Error if this version of Node has no such handle, or cannot send it: it is undocumented. */
  #duplicate(): void {
    const { _handle: handle } = this.server as Server & { _handle?: SendHandle | null }
    if (!handle) throw new Error(`node ${process.version} does not show the handle of what listens`)
    const child = fork(fileURLToPath(new URL('./duplicate.js', import.meta.url)), {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc']
    })
    this.#child = child
    child.on('error', error => this.#failed(error.message))
    child.on('disconnect', () => {
      if (this.#duplicates.length === 0) this.#failed('no further descriptor could be made')
    })
    child.on('message', (_, duplicate) => this.#listen(duplicate as Server | undefined))
    child.send(LIMITS.acceptedPerTick - 1, handle, error => {
      if (error) this.#failed(error.message)
    })
  }

  /** Goes on with one descriptor. */
  #failed(reason: string): void {
    this.#child?.kill()
    if (this.#isLogged || this.#closed) return
    this.#isLogged = true
    this.log.warn(`one connection is accepted at a time, which a storm of them may find slow: ${reason}`)
  }

  #listen(handle: Server | undefined): void {
    // This version of Node does not send listening sockets.
    if (!handle) return
    const duplicate = createServer(this.options, (socket: Socket) => this.server.emit('connection', socket))
    duplicate
      .on('error', error => this.log.error(`accepting: ${error.message}`))
      .listen(handle, LIMITS.acceptBacklog)
    if (this.#closed) duplicate.close()
    else this.#duplicates.push(duplicate)
  }

  /** Stops accepting. Resolves when no connection is left. */
  async close(): Promise<void> {
    this.#done = true
    this.#closed = true
    this.#child?.kill()
    const servers = [this.server, ...this.#duplicates]
    await Promise.all(servers.map(server => new Promise<void>(resolve => server.close(() => resolve()))))
  }
}
