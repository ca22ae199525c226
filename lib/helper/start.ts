import { once } from 'node:events'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { ServiceError, unavailable } from '../base/errors.js'
import { exists } from '../disk/file.js'
import { startAttached } from '../program/held-program.js'
import { withParentDeathSignal } from '../program/program.js'
import type { Args, Name, Result, RootHelper, TaskHooks, Verb } from './commands.js'
import {
  CHILD_VARIABLE,
  HELPER_SOCKET_PATH,
  type HelperReport,
  receive,
  SOCKET_FD,
  send
} from './messages.js'

/** A helper of systemd ends by itself; a child ends with its connection. */
const SOCKET_IDLE_MS = 1000
const CHILD_IDLE_MS = 60_000

/**
 * Chooses the helper: the socket of the ini; else, as root, a child process that `command` starts on first
 * use; else the socket of systemd; else a child with the rights of this process. If nobody listens on a
 * socket, calls are refused with 503 and the command to type.
 */
export function openHelper(socket: string, command: readonly string[]): RootHelper {
  if (socket !== '') return new HelperClient(() => connected(socket), SOCKET_IDLE_MS)
  if (process.getuid?.() === 0) return new HelperClient(() => startChild(command), CHILD_IDLE_MS)
  const standardOrChild = async () =>
    (await exists(HELPER_SOCKET_PATH)) ? connected(HELPER_SOCKET_PATH) : startChild(command)
  return new HelperClient(standardOrChild, SOCKET_IDLE_MS)
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

/** Starts a helper that ends with its socket, and does not get signals of the keyboard. */
async function startChild(command: readonly string[]): Promise<Duplex> {
  const [program = '', ...words] = command
  const [file, args] = await withParentDeathSignal(program, words)
  const { NODE_OPTIONS, PATH, HOME } = process.env
  const env = { PATH, HOME, [CHILD_VARIABLE]: '1', ...(NODE_OPTIONS === undefined ? {} : { NODE_OPTIONS }) }
  const streams = ['ignore', 'inherit', 'inherit', 'pipe'] as const
  const { child } = startAttached(file, args, streams, { env, detached: true })
  await once(child, 'spawn')
  return child.stdio[SOCKET_FD] as unknown as Duplex
}

interface Pending extends TaskHooks {
  resolve(result: unknown): void
  reject(error: Error): void
}

/** A client of the helper. It disconnects `idleMs` after its last task. */
export class HelperClient implements RootHelper {
  readonly #pending = new Map<number, Pending>()
  #socket: Promise<Duplex> | undefined
  #last = 0
  #idle: NodeJS.Timeout | undefined

  /** `connect`: throws Error with the reason. */
  constructor(
    private readonly connect: () => Promise<Duplex>,
    private readonly idleMs: number
  ) {}

  async call<N extends Name>(command: N, args: Args<N>, course: TaskHooks = {}): Promise<Result<N>> {
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
      if (this.#pending.size === 0) this.#idle = setTimeout(() => void this.close(), this.idleMs).unref()
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
      const why = `the helper that does root's work cannot be reached: ${(error as Error).message}`
      throw unavailable(why, 'unavailable', error)
    })
    return this.#socket
  }

  async #start(): Promise<Duplex> {
    const socket = await this.connect()
    let why = 'it has ended'
    socket.on('error', error => {
      why = error.message
    })
    socket.once('close', () => {
      this.#socket = undefined
      for (const { reject } of this.#pending.values())
        reject(unavailable(`the helper that does root's work was lost: ${why}`))
    })
    receive<HelperReport>(socket, report => this.#take(report))
    return socket
  }

  #take(report: HelperReport): void {
    const work = this.#pending.get(report.id)
    if (work === undefined) return
    try {
      if ('line' in report) work.line?.(report.line)
      else if ('progress' in report) work.progress?.(report.progress)
      else if ('change' in report) work.change?.(report.change)
      else if ('result' in report) work.resolve(report.result ?? undefined)
      else if (report.status === undefined) work.reject(new Error(report.error))
      else work.reject(new ServiceError(report.status, report.error, {}, { code: report.code }))
    } catch (error) {
      work.reject(error as Error)
    }
  }
}

type Run = (words: readonly string[], signal: AbortSignal) => Promise<string>

const verbs: readonly string[] = ['start', 'stop', 'restart', 'reload'] satisfies readonly Verb[]

/** Runs commands of the ini by `run`. Without root, the helper runs `systemctl` for units of the ini. */
export function systemctlBy(work: RootHelper, run: Run): Run {
  if (process.getuid?.() === 0) return run
  return (words, signal) => {
    const [program, verb = '', unit = ''] = words
    const isHelpers = program === 'systemctl' && words.length === 3 && verbs.includes(verb)
    return isHelpers ? work.call('systemctl', { verb: verb as Verb, unit }, { signal }) : run(words, signal)
  }
}
