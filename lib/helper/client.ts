import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { ServiceError, unavailable } from '../errors.js'
import type { Args, Name, Result } from './commands.js'
import type { Course } from './course.js'
import { type Report, receive, send } from './messages.js'
import type { Work } from './work.js'

interface Pending extends Course {
  resolve(result: unknown): void
  reject(error: Error): void
}

/** A connection to the helper: `connect` gives a socket, or throws an Error with the reason. */
export type Connect = () => Promise<Duplex>

/** Has root's work done by the helper. The connection stands while there is work, and `idleMs` longer. */
export class Helper implements Work {
  readonly #connect: Connect
  readonly #idleMs: number
  readonly #pending = new Map<number, Pending>()
  #socket: Promise<Duplex> | undefined
  #last = 0
  #idle: NodeJS.Timeout | undefined

  constructor(connect: Connect, idleMs: number) {
    this.#connect = connect
    this.#idleMs = idleMs
  }

  async call<N extends Name>(command: N, args: Args<N>, course: Course = {}): Promise<Result<N>> {
    const { signal, timeLimitMs } = course
    const id = ++this.#last
    const stopped = () => new Error(`${command} was stopped`)
    if (signal?.aborted) throw stopped()
    clearTimeout(this.#idle)
    let stop = () => {}
    try {
      return await new Promise<Result<N>>((resolve, reject) => {
        this.#pending.set(id, { ...course, resolve: result => resolve(result as Result<N>), reject })
        this.#open().then(socket => {
          if (signal?.aborted) return reject(stopped())
          stop = () => send(socket, { id, stop: true })
          signal?.addEventListener('abort', stop)
          send(socket, { id, command, args, ...(timeLimitMs === undefined ? {} : { timeLimitMs }) })
        }, reject)
      })
    } finally {
      signal?.removeEventListener('abort', stop)
      this.#pending.delete(id)
      if (this.#pending.size === 0) this.#idle = setTimeout(() => void this.close(), this.#idleMs).unref()
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.#idle)
    const socket = await this.#socket?.catch(() => undefined)
    if (socket === undefined || socket.closed) return
    const closed = once(socket, 'close').catch(() => {})
    socket.end()
    socket.destroy()
    await closed
  }

  #open(): Promise<Duplex> {
    this.#socket ??= this.#start().catch(error => {
      this.#socket = undefined
      throw unavailable(
        `the helper that does root's work cannot be reached: ${(error as Error).message}`,
        error
      )
    })
    return this.#socket
  }

  async #start(): Promise<Duplex> {
    const socket = await this.#connect()
    let why = 'it has ended'
    socket.on('error', error => {
      why = error.message
    })
    socket.once('close', () => {
      this.#socket = undefined
      for (const { reject } of this.#pending.values())
        reject(unavailable(`the helper that does root's work was lost: ${why}`))
    })
    receive<Report>(socket, report => this.#take(report))
    return socket
  }

  #take(report: Report): void {
    const work = this.#pending.get(report.id)
    if (work === undefined) return
    try {
      if ('line' in report) work.line?.(report.line)
      else if ('progress' in report) work.progress?.(report.progress)
      else if ('change' in report) work.change?.(report.change)
      else if ('result' in report) work.resolve(report.result ?? undefined)
      else
        work.reject(
          report.status === undefined
            ? new Error(report.error)
            : new ServiceError(report.status, report.error)
        )
    } catch (error) {
      work.reject(error as Error)
    }
  }
}
