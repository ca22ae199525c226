import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { timeLimited } from '../base/concurrency.js'
import {
  environment,
  killGroup,
  Lines,
  locate,
  ProgramError,
  STDERR_KEPT,
  stdioWithoutInherited,
  withParentDeathSignal
} from './program.js'

/**
 * Starts a program on streams of this process (`inherit`), where it may ask on the terminal, or on pipes that
 * the caller serves. `ended` resolves to its exit status, null after a signal, and rejects with the system's
 * error if it cannot be started.
 */
export function startAttached(
  program: string,
  args: readonly string[],
  streams: readonly ('ignore' | 'pipe' | 'inherit')[],
  options: Pick<SpawnOptions, 'cwd' | 'env' | 'detached'> = {}
): { child: ChildProcess; ended: Promise<number | null> } {
  const child = spawn(program, args, { ...options, stdio: stdioWithoutInherited(streams) })
  const ended = once(child, 'close').then(([status]) => status as number | null)
  // The caller may wait for it later.
  ended.catch(() => {})
  return { child, ended }
}

const LINES_KEPT = 100
const END_MS = 5000

interface HeldOptions {
  readonly signal: AbortSignal
  /** Time limit of a line. */
  readonly timeLimitMs: number
  readonly cwd?: string
}

/** Holds something, like a namespace, until it is ended; the kernel kills it with this process (setpriv). */
export class HeldProgram {
  readonly #child: ChildProcess
  readonly #lines: string[] = []
  readonly #closed: Promise<unknown>
  #isClosed = false
  #stderr = ''
  #woken = () => {}

  private constructor(
    private readonly program: string,
    { child, ended }: ReturnType<typeof startAttached>,
    private readonly options: HeldOptions
  ) {
    this.#child = child
    const lines = new Lines(line => {
      if (this.#lines.length < LINES_KEPT) this.#lines.push(line)
      this.#woken()
    })
    child.stdout?.on('data', bytes => lines.add(bytes))
    child.stderr?.on('data', bytes => {
      this.#stderr = `${this.#stderr}${bytes}`.slice(-STDERR_KEPT)
    })
    child.stdin?.on('error', () => {})
    this.#closed = ended
      .catch(() => {})
      .then(() => {
        this.#isClosed = true
        this.#woken()
      })
  }

  /** Starts a program with an argument array. Throws ProgramError if it is missing. */
  static async start(program: string, args: readonly string[], options: HeldOptions): Promise<HeldProgram> {
    const env = environment()
    const file = await locate(program)
    if (file === undefined) throw new ProgramError(program, 'missing', 'is not installed')
    const [command, words] = await withParentDeathSignal(file, args)
    const started = startAttached(command, words, ['pipe', 'pipe', 'pipe'], {
      ...{ env, cwd: options.cwd, detached: true }
    })
    return new HeldProgram(program, started, options)
  }

  /** Undefined if it could not be started; `line` then throws the reason. */
  get pid(): number | undefined {
    return this.#child.pid
  }

  /** Returns the next line of standard output. Throws ProgramError at its end, late, or aborted. */
  async line(): Promise<string> {
    const { signal, timeLimitMs } = this.options
    const failed = (why: 'failed' | 'aborted' | 'time limit', what: string) =>
      new ProgramError(this.program, why, what, this.#child.exitCode ?? undefined, this.#stderr)
    const limited = timeLimited(this.options)
    limited.signal.addEventListener('abort', () => this.#woken())
    try {
      for (;;) {
        const line = this.#lines.shift()
        if (line !== undefined) return line
        if (signal.aborted) throw failed('aborted', 'was stopped')
        if (this.#isClosed) throw failed('failed', `failed with status ${this.#child.exitCode}`)
        if (limited.signal.aborted) throw failed('time limit', `took longer than ${timeLimitMs} ms to begin`)
        await new Promise<void>(resolve => {
          this.#woken = resolve
        })
      }
    } finally {
      limited.release()
    }
  }

  /** Writes an empty line to its standard input. */
  sendLine(): void {
    this.#child.stdin?.write('\n')
  }

  /** Closes its standard input, kills it if that does not end it, and waits for its end. */
  async end(): Promise<void> {
    this.#child.stdin?.end()
    const timer = setTimeout(() => killGroup(this.#child, 'SIGKILL'), END_MS)
    await this.#closed
    clearTimeout(timer)
  }
}
