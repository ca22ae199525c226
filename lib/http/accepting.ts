import { type ChildProcess, fork, type SendHandle } from 'node:child_process'
import { createServer, type Server, type ServerOpts, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import type { Log } from '../log.js'

/** Connections that wait to be accepted; the system may have a lower bound (net.core.somaxconn). */
export const WAITING = 4096
/** Further descriptors of the listening socket. */
const DUPLICATES = 15
/** After so many connections it is looked at whether the event loop keeps up. */
const LOOK_EVERY = 64
/** A larger part of the time than this without a pause is an event loop that may not keep up. */
const BUSY = 0.8

/**
 * Accepts more than one connection in a turn of the event loop (rules 2.15). libuv accepts one per descriptor and turn. A
 * busy loop has few turns in a second: connections would wait until the system drops new ones, boot scripts too. So the
 * first time that the loop is busy while connections come, the listening socket gets more descriptors.
 */
export class Accepting {
  readonly #server: Server
  readonly #options: ServerOpts
  readonly #log: Log
  readonly #duplicates: Server[] = []
  #accepted = 0
  #since = performance.eventLoopUtilization()
  #child: ChildProcess | undefined
  /** No more descriptors are made. */
  #done = false
  #closed = false

  /** `options`: how the sockets of `server` are made. */
  constructor(server: Server, options: ServerOpts, log: Log) {
    this.#server = server
    this.#options = options
    this.#log = log
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
    this.#duplicate()
  }

  #duplicate(): void {
    const { _handle: handle } = this.#server as Server & { _handle?: SendHandle | null }
    if (!handle) return
    const child = fork(fileURLToPath(new URL('./duplicate.js', import.meta.url)), {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc']
    })
    this.#child = child
    child.on('error', error => this.#log.warn(`one connection is accepted at a time: ${error.message}`))
    child.on('message', (_, duplicate) => this.#listen(duplicate as Server))
    child.send(DUPLICATES, handle, error => {
      if (error) this.#log.warn(`one connection is accepted at a time: ${error.message}`)
    })
  }

  #listen(handle: Server): void {
    const duplicate = createServer(this.#options, (socket: Socket) => this.#server.emit('connection', socket))
    duplicate.on('error', error => this.#log.error(`accepting: ${error.message}`)).listen(handle, WAITING)
    if (this.#closed) duplicate.close()
    else this.#duplicates.push(duplicate)
  }

  /** Accepts no more; resolves when no connection is left. */
  async close(): Promise<void> {
    this.#done = true
    this.#closed = true
    this.#child?.kill()
    const servers = [this.#server, ...this.#duplicates]
    await Promise.all(servers.map(server => new Promise<void>(resolve => server.close(() => resolve()))))
  }
}
