import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readdirSync, readFileSync } from 'node:fs'
import { access, constants, stat } from 'node:fs/promises'
import { delimiter, isAbsolute, join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { LONGEST_MS } from '../concurrency.js'
import { oneLine } from '../log.js'
import { Lines } from './lines.js'

export interface ProgramOptions {
  /** Then SIGTERM and, 5 s later, SIGKILL go to the whole process group. */
  readonly timeLimitMs: number
  /** Aborted: the same ending. */
  readonly signal?: AbortSignal
  readonly cwd?: string
  /** A program and its words, which runs the program with its arguments put behind them, in its own place. */
  readonly through?: readonly string[] | undefined
  /** Default: PATH, HOME and LC_ALL=C, nothing else of ours. A PATH in it is where the program is looked for. */
  readonly env?: NodeJS.ProcessEnv
  /** To standard input; default: nothing (/dev/null). */
  readonly input?: string
  /** File descriptor for standard output; it stays open here. Default: gathered as text. */
  readonly output?: number
  /** Bytes of standard output that are gathered, default 16 MiB; more is an error, and ends the program. */
  readonly maxOutput?: number
  /**
   * Each line of standard output as it comes, which is not gathered then. A carriage return ends a line too. Where it gives a
   * promise, no more is read until that has resolved, so that the program waits in its turn.
   */
  readonly onLine?: (line: string) => unknown
  /** The same of standard error. */
  readonly onErrorLine?: (line: string) => unknown
  /** Exit statuses that are success, default [0]. */
  readonly ok?: readonly number[]
}

export interface ProgramResult {
  readonly status: number
  /** UTF-8; empty with `output` or `onLine`. */
  readonly stdout: string
  /** The last 8 KiB. */
  readonly stderr: string
}

const MAX_OUTPUT = 16 * 1024 * 1024
const STDERR_KEPT = 8 * 1024
const KILL_AFTER_MS = 5000
/** How long a process that left the group may keep the streams open after the program has ended. */
const DRAIN_MS = 1000

/**
 * Runs a program to its end by its argument array, never through a shell, in a process group of its own. What it
 * leaves running in that group is killed when it ends. Where the system has setpriv, the program is killed with this
 * process, also by kill -9; what the program started is not then (`unshare --pid --kill-child` is for that). Throws a
 * ProgramError. What `onLine` or `onErrorLine` throws ends the program and is thrown on.
 */
export async function run(
  program: string,
  args: readonly string[],
  options: ProgramOptions
): Promise<ProgramResult> {
  const env = options.env ?? environment()
  if (options.signal?.aborted) throw new ProgramError(program, 'aborted', 'was stopped before it began')
  const nul = [...args, options.cwd ?? ''].find(text => text.includes('\0'))
  if (nul !== undefined)
    throw new ProgramError(
      program,
      'failed',
      `cannot be given ${JSON.stringify(nul)}: it holds a NUL character`
    )
  const file = await locate(program, env.PATH)
  if (file === undefined) throw new ProgramError(program, 'missing', 'is not installed')
  const { cwd, input, output, through = [] } = options
  const [first = file, ...rest] = [...through, file, ...args]
  const outer = await locate(first, env.PATH)
  if (outer === undefined) throw new ProgramError(first, 'missing', 'is not installed')
  const [command, words] = await boundToUs(outer, rest)
  const start = () =>
    spawn(command, words, {
      ...(cwd === undefined ? {} : { cwd }),
      env,
      detached: true,
      stdio: withoutInherited([input === undefined ? 'ignore' : 'pipe', output ?? 'pipe', 'pipe'])
    })
  return new Run(program, options, start).result
}

/** Why a program was ended early: one of our reasons, or what the caller's own function threw. */
type Ending = { readonly why: Why; readonly what: string } | { readonly thrown: unknown }

class Run {
  readonly result: Promise<ProgramResult>
  readonly #program: string
  readonly #options: ProgramOptions
  readonly #child: ChildProcess
  readonly #timers: NodeJS.Timeout[] = []
  readonly #stdout: Buffer[] = []
  #stdoutBytes = 0
  #stderr = Buffer.alloc(0)
  #ending: Ending | undefined
  #exited = false

  constructor(program: string, options: ProgramOptions, start: () => ChildProcess) {
    this.#program = program
    this.#options = options
    this.#child = this.#start(start)
    const closed = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
      // Also sent for other failures of a child that runs; its `close` follows.
      this.#child.on('error', error => {
        if (this.#child.pid === undefined) reject(this.#notStarted(error))
      })
      this.#child.once('close', (...end) => resolve(end))
    })
    this.result = closed.then(([status, by]) => this.#outcome(status, by)).finally(() => this.#forget())
    if (this.#child.pid !== undefined) this.#watch()
  }

  #start(start: () => ChildProcess): ChildProcess {
    try {
      return start()
    } catch (error) {
      throw this.#notStarted(error as NodeJS.ErrnoException)
    }
  }

  #watch(): void {
    const { timeLimitMs, signal, input, onLine, onErrorLine } = this.#options
    const { stdin, stdout, stderr } = this.#child
    this.#child.once('exit', () => this.#finish())
    if (onLine) this.#cut(stdout, onLine)
    else stdout?.on('data', bytes => this.#gather(bytes))
    stderr?.on('data', (bytes: Buffer) => {
      this.#stderr = Buffer.concat([this.#stderr, bytes]).subarray(-STDERR_KEPT)
    })
    if (onErrorLine) this.#cut(stderr, onErrorLine)
    // A program need not read what it is given.
    stdin?.on('error', () => {}).end(input)
    if (signal?.aborted) this.#abort()
    signal?.addEventListener('abort', this.#abort)
    const limit = Math.min(timeLimitMs, LONGEST_MS)
    this.#after(limit, () =>
      this.#end({ why: 'time limit', what: `took longer than ${duration(limit)} and was ended` })
    )
  }

  #gather(bytes: Buffer): void {
    const { maxOutput = MAX_OUTPUT } = this.#options
    this.#stdoutBytes += bytes.length
    if (this.#stdoutBytes <= maxOutput) this.#stdout.push(bytes)
    else this.#end({ why: 'failed', what: `wrote more than ${maxOutput} bytes and was ended` })
  }

  #cut(stream: Readable | null, take: (line: string) => unknown): void {
    let wait: unknown
    const lines = new Lines(line => {
      // After the first throw the caller has no more use for lines.
      if (this.#ending && 'thrown' in this.#ending) return
      try {
        wait = take(line) ?? wait
      } catch (thrown) {
        this.#end({ thrown })
      }
    })
    stream?.on('data', (bytes: Buffer) => {
      lines.add(bytes)
      if (!(wait instanceof Promise)) return
      stream.pause()
      void wait.finally(() => stream.resume())
      wait = undefined
    })
    // Not `end`, which does not come when the stream has to be destroyed.
    stream?.once('close', () => lines.end())
  }

  readonly #abort = () => this.#end({ why: 'aborted', what: 'was stopped' })

  #end(ending: Ending): void {
    if (this.#ending) return
    this.#ending = ending
    if (this.#exited) return
    this.#kill('SIGTERM')
    this.#after(KILL_AFTER_MS, () => this.#kill('SIGKILL'))
  }

  /** The program has ended; what it wrote may still be on its way. */
  #finish(): void {
    this.#exited = true
    this.#forget()
    this.#kill('SIGKILL')
    this.#after(DRAIN_MS, () =>
      // What has arrived is read before the streams are closed.
      setImmediate(() => {
        this.#child.stdout?.destroy()
        this.#child.stderr?.destroy()
      })
    )
  }

  /** Drops everything that could end the program. */
  #forget(): void {
    for (const timer of this.#timers.splice(0)) clearTimeout(timer)
    this.#options.signal?.removeEventListener('abort', this.#abort)
  }

  #kill(signal: NodeJS.Signals): void {
    try {
      process.kill(-(this.#child.pid as number), signal)
    } catch {
      // No process is left in the group.
    }
  }

  #outcome(status: number | null, by: NodeJS.Signals | null): ProgramResult {
    const stderr = this.#stderr.toString('utf8')
    const failed = (why: Why, what: string) =>
      new ProgramError(this.#program, why, what, status ?? undefined, stderr)
    const ending = this.#ending
    if (ending && 'thrown' in ending) throw ending.thrown
    if (ending) throw failed(ending.why, ending.what)
    if (status === null) throw failed('failed', `was killed by ${by}`)
    if (!(this.#options.ok ?? [0]).includes(status)) throw failed('failed', `failed with status ${status}`)
    return { status, stdout: Buffer.concat(this.#stdout).toString('utf8'), stderr }
  }

  #notStarted(error: NodeJS.ErrnoException): ProgramError {
    const where = this.#options.cwd === undefined ? '' : ` in ${JSON.stringify(this.#options.cwd)}`
    return new ProgramError(
      this.#program,
      'failed',
      `cannot be started${where}: ${error.code ?? error.message}`
    )
  }

  #after(ms: number, work: () => void): void {
    this.#timers.push(setTimeout(work, ms))
  }
}

const units = [
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
  ['ms', 1]
] as const

/** A duration in the largest unit that needs no fraction. */
function duration(ms: number): string {
  const [unit, size] = units.find(([, size]) => ms % size === 0) ?? ['ms', 1]
  return `${ms / size} ${unit}`
}

/** By the path of a setpriv: whether it knows --pdeathsig. Busybox's does not. */
const able = new Map<string, Promise<boolean>>()

/**
 * The command that runs `file` so that the kernel kills it when this process ends, however that happens. Without
 * a setpriv that can do this, the command itself. What `file` starts in its turn is not covered.
 */
export async function boundToUs(file: string, args: readonly string[]): Promise<[string, string[]]> {
  const setpriv = await locate('setpriv')
  if (setpriv === undefined) return [file, [...args]]
  const can = able.get(setpriv) ?? canBind(setpriv)
  able.set(setpriv, can)
  return (await can) ? [setpriv, ['--pdeathsig', 'KILL', '--', file, ...args]] : [file, [...args]]
}

async function canBind(setpriv: string): Promise<boolean> {
  const child = spawn(setpriv, ['--pdeathsig', 'KILL', '--', setpriv, '--version'], {
    env: {},
    stdio: 'ignore'
  })
  const [status] = await once(child, 'exit').catch(() => [undefined])
  return status === 0
}

/** Why a program did not succeed. `failed`: a status that is not `ok`, a signal, too much output, not startable. */
export type Why = 'missing' | 'failed' | 'time limit' | 'aborted'

/** A program did not do what it was run for; `message` is one sentence with its name and its last words. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError'

  constructor(
    readonly program: string,
    readonly why: Why,
    what: string,
    /** The exit status, where it came to that. */
    readonly status?: number,
    /** The last 8 KiB of its standard error. */
    readonly stderr = ''
  ) {
    const words = lastWords(stderr)
    super(`${program} ${what}${words === '' ? '' : `: ${words}`}`)
  }
}

const LONGEST_WORDS = 300

/** The last line with something on it, on one line whatever it holds. */
function lastWords(stderr: string): string {
  const line =
    stderr
      .split(/[\r\n]+/)
      .findLast(text => text.trim() !== '')
      ?.trim() ?? ''
  return oneLine(line, LONGEST_WORDS)
}

const O_CLOEXEC = 0o2000000

/** What this process was given when it was started, beside standard input and output, and would hand on to programs. */
const inherited = readdirSync('/proc/self/fd').map(Number).filter(isHandedOn)

function isHandedOn(descriptor: number): boolean {
  try {
    const [, flags = ''] =
      /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1')) ?? []
    return descriptor > 2 && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // It was that of the directory that was read.
    return false
  }
}

let nothing: number | undefined

/**
 * The standard streams of a program to start, so that it gets no descriptor that this process was started with: such as the
 * socket of systemd's, or a pipe of the shell. In their place it has /dev/null. What node opens itself is not handed on.
 */
export function withoutInherited(
  streams: readonly (number | 'ignore' | 'pipe' | 'inherit' | 'ipc')[]
): StdioOptions {
  const first = streams.length
  const last = Math.max(first - 1, ...inherited)
  if (last >= first) nothing ??= openSync('/dev/null', 'r+')
  const others = Array.from({ length: last - first + 1 }, (_, i) =>
    inherited.includes(i + first) ? (nothing as number) : ('ignore' as const)
  )
  return [...streams, ...others]
}

/** The environment that a program gets where it is not told. */
export const environment = () => ({ PATH: searchPath(), HOME: process.env.HOME ?? '/', LC_ALL: 'C' })

/** Where programs are looked for: PATH, and the system directories that an ordinary user's PATH lacks. */
export function searchPath(): string {
  const own = process.env.PATH || ['/usr/local/bin', '/usr/bin', '/bin'].join(delimiter)
  return [own, '/usr/local/sbin', '/usr/sbin', '/sbin'].join(delimiter)
}

/**
 * The absolute path of a program on the search path. A name with a slash is a path itself. Undefined: there is no
 * such file, or we may not run it.
 */
export async function locate(program: string, path: string = searchPath()): Promise<string | undefined> {
  if (program === '' || program.includes('\0')) return undefined
  if (program.includes('/')) return (await isProgram(program)) ? resolve(program) : undefined
  for (const directory of path.split(delimiter).filter(isAbsolute)) {
    const file = join(directory, program)
    if (await isProgram(file)) return file
  }
  return undefined
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}
