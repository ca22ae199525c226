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
  readonly #duplicates: Server[] = []
  #accepted = 0
  #since = performance.eventLoopUtilization()
  #child: ChildProcess | undefined
  /** No more descriptors are made. */
  #done = false
  #isTold = false
  #closed = false

  /** `options`: how the sockets of `server` are made. */
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

  /** Throws Error where this version of Node has no such handle, or sends it to no process: it is not documented. */
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
    child.send(DUPLICATES, handle, error => {
      if (error) this.#failed(error.message)
    })
  }

  /** All goes on as it began, with one descriptor. */
  #failed(reason: string): void {
    this.#child?.kill()
    if (this.#isTold || this.#closed) return
    this.#isTold = true
    this.log.warn(`one connection is accepted at a time, which a storm of them may find slow: ${reason}`)
  }

  #listen(handle: Server | undefined): void {
    // Sent by a version of Node that does not send what listens.
    if (!handle) return
    const duplicate = createServer(this.options, (socket: Socket) => this.server.emit('connection', socket))
    duplicate.on('error', error => this.log.error(`accepting: ${error.message}`)).listen(handle, WAITING)
    if (this.#closed) duplicate.close()
    else this.#duplicates.push(duplicate)
  }

  /** Accepts no more; resolves when no connection is left. */
  async close(): Promise<void> {
    this.#done = true
    this.#closed = true
    this.#child?.kill()
    const servers = [this.server, ...this.#duplicates]
    await Promise.all(servers.map(server => new Promise<void>(resolve => server.close(() => resolve()))))
  }
}
