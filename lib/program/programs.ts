import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { type FailureKind, type ProgramOptions, stdioWithoutInherited } from './program.js'

type Options = Required<Pick<ProgramOptions, 'env' | 'timeLimitMs' | 'maxOutput'>>

/** Output of a program, or why it failed, as in ProgramError. */
export type Outcome =
  | { readonly stdout: string }
  | { readonly why: FailureKind; readonly stderr: string; readonly message: string }

/** Has the child process run a program. */
export interface RunMessage {
  readonly id: number
  readonly program: string
  readonly args: readonly string[]
  readonly options: Options
}
/** Messages to the child process. */
export type ProcessMessage = RunMessage | { readonly id: number; readonly stop: true }

const IDLE_MS = 60_000
const FILE = fileURLToPath(new URL('./programs-process.js', import.meta.url))

/**
 * Runs programs from a small child process, which ends a minute after the last one. Forking stops the parent
 * in proportion to its memory: the daemon would stand still for some 50 ms each time.
 */
export class Programs {
  #process: ChildProcess | undefined
  readonly #pending = new Map<number, (outcome: Outcome) => void>()
  #last = 0
  #idle: NodeJS.Timeout | undefined

  /** Runs a program with these arguments to its end. Never throws. */
  run(program: string, args: readonly string[], options: Options, signal: AbortSignal): Promise<Outcome> {
    if (signal.aborted) return Promise.resolve(failed('aborted', `${program} was stopped before it began`))
    const id = ++this.#last
    clearTimeout(this.#idle)
    const stop = () => this.#send({ id, stop: true })
    return new Promise<Outcome>(resolve => {
      this.#pending.set(id, resolve)
      signal.addEventListener('abort', stop)
      this.#send({ id, program, args, options })
    }).finally(() => {
      signal.removeEventListener('abort', stop)
      this.#pending.delete(id)
      if (this.#pending.size === 0) this.#idle = setTimeout(() => this.close(), IDLE_MS).unref()
    })
  }

  /** Ends the child process and the programs it runs. */
  close(): void {
    clearTimeout(this.#idle)
    if (this.#process?.connected) this.#process.disconnect()
    this.#process = undefined
    for (const resolve of this.#pending.values()) resolve(failed('aborted', 'was stopped'))
  }

  #send(told: ProcessMessage): void {
    this.#process ??= this.#start()
    const child = this.#process
    child.send(told, error => {
      // A child that takes no messages has ended or hangs. Its exit rejects all pending calls.
      if (error) child.kill('SIGKILL')
    })
  }

  #start(): ChildProcess {
    const { PATH, HOME } = process.env
    const stdio = stdioWithoutInherited(['ignore', 'ignore', 'inherit', 'ipc'])
    const child = fork(FILE, [], { env: { PATH, HOME }, detached: true, stdio })
    child.on('message', ({ id, outcome }: { id: number; outcome: Outcome }) =>
      this.#pending.get(id)?.(outcome)
    )
    const ended = (reason: string) => {
      if (this.#process !== child) return
      this.#process = undefined
      for (const resolve of this.#pending.values())
        resolve(failed('failed', `the process that runs programs ended: ${reason}`))
    }
    child.on('error', error => ended(error.message))
    child.on('exit', (status, by) => ended(by ?? `status ${status}`))
    return child
  }
}

const failed = (why: FailureKind, message: string): Outcome => ({ why, stderr: '', message })
