import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readdirSync, readFileSync } from 'node:fs'
import { access, constants, stat } from 'node:fs/promises'
import { basename, delimiter, isAbsolute, join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { getOrAdd } from '../base/lists.js'
import { oneLine } from '../base/log.js'
import { LONGEST_MS } from '../base/thread.js'

/** The bounds of work by programs, and who hears of it. */
export interface Course {
  readonly signal: AbortSignal
  readonly timeLimitMs: number
  /** Takes lines for the admin. */
  line(text: string): unknown
}
export type Limits = Omit<Course, 'line'>

export interface ProgramOptions {
  /** At this limit, SIGTERM goes to the whole process group, and SIGKILL 5 s later. */
  readonly timeLimitMs: number
  /** Aborting it ends the program in the same way. */
  readonly signal?: AbortSignal
  readonly cwd?: string
  /** The user as whom it runs; default: this process's. */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined
  /** A wrapper with its arguments, to which the program and its arguments are appended. */
  readonly wrapper?: readonly string[] | undefined
  /** Default: only PATH, HOME and LC_ALL=C. The program is searched in its PATH. */
  readonly env?: NodeJS.ProcessEnv
  /** File descriptor for standard input; it stays open here. Default: nothing to read. */
  readonly input?: number
  /** File descriptor for standard output; it stays open here. Default: collected as text. */
  readonly output?: number
  /** Maximum bytes of standard output, default 16 MiB; exceeding it ends the program with an error. */
  readonly maxOutput?: number
  /**
   * Receives each line of standard output, which is then not collected. A carriage return ends a line too.
   * Reading pauses until a returned promise resolves, so that the program waits too.
   */
  readonly onLine?: (line: string) => unknown
  /** Receives standard output in pieces, which is then not collected. */
  readonly onBytes?: (bytes: Buffer) => void
  /** Like `onLine`, for standard error. */
  readonly onErrorLine?: (line: string) => unknown
  /** Successful exit statuses, default [0]. */
  readonly ok?: readonly number[]
}

interface ProgramResult {
  readonly status: number
  /** UTF-8; empty with `output` or `onLine`. */
  readonly stdout: string
  /** The last 8 KiB. */
  readonly stderr: string
}

const MAX_OUTPUT = 16 * 1024 * 1024
/** Bytes of standard error that are kept. */
export const STDERR_KEPT = 8 * 1024
const KILL_AFTER_MS = 5000
/** A process outside the group may hold the streams open this long after the program's end. */
const DRAIN_MS = 1000

/**
 * Runs a program with an argument array, never through a shell, in its own process group, which is killed at
 * its end. If setpriv is installed, the kernel kills the program with this process, also after kill -9, but
 * not the program's children (`unshare --pid --kill-child` does that). Throws ProgramError; a throw of
 * `onLine` or `onErrorLine` ends the program and is rethrown.
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
  if (file === undefined)
    throw new ProgramError(program, 'missing', `is not installed${installHint(program)}`)
  const { cwd, user, input, output, wrapper = [] } = options
  const [first = file, ...rest] = [...wrapper, file, ...args]
  const outer = await locate(first, env.PATH)
  if (outer === undefined) throw new ProgramError(first, 'missing', 'is not installed')
  const [command, words] = await withParentDeathSignal(outer, rest)
  const start = () =>
    spawn(command, words, {
      ...{ cwd, uid: user?.uid, gid: user?.gid, env, detached: true },
      stdio: stdioWithoutInherited([input ?? 'ignore', output ?? 'pipe', 'pipe'])
    })
  return new Run(program, options, start).result
}

/** The reason for ending a program early: ours, or a throw of the caller's function. */
type Ending = { readonly why: FailureKind; readonly what: string } | { readonly thrown: unknown }

class Run {
  readonly result: Promise<ProgramResult>
  readonly #child: ChildProcess
  readonly #timers: NodeJS.Timeout[] = []
  readonly #stdout: Buffer[] = []
  #stdoutBytes = 0
  #stderr = Buffer.alloc(0)
  #ending: Ending | undefined
  #exited = false

  constructor(
    private readonly program: string,
    private readonly options: ProgramOptions,
    start: () => ChildProcess
  ) {
    try {
      this.#child = start()
    } catch (error) {
      throw this.#notStarted(error as NodeJS.ErrnoException)
    }
    const closed = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
      // Also emitted for failures of a running child, whose `close` follows.
      this.#child.on('error', error => {
        if (this.#child.pid === undefined) reject(this.#notStarted(error))
      })
      this.#child.once('close', (...end) => resolve(end))
    })
    this.result = closed.then(([status, by]) => this.#outcome(status, by)).finally(() => this.#cancel())
    if (this.#child.pid !== undefined) this.#watch()
  }

  #watch(): void {
    const { timeLimitMs, signal, onBytes, onLine, onErrorLine } = this.options
    const { stdout, stderr } = this.#child
    this.#child.once('exit', () => this.#finish())
    if (onLine) this.#splitLines(stdout, onLine)
    else stdout?.on('data', onBytes ?? (bytes => this.#collect(bytes)))
    stderr?.on('data', (bytes: Buffer) => {
      this.#stderr = Buffer.concat([this.#stderr, bytes]).subarray(-STDERR_KEPT)
    })
    if (onErrorLine) this.#splitLines(stderr, onErrorLine)
    if (signal?.aborted) this.#abort()
    signal?.addEventListener('abort', this.#abort)
    const limit = Math.min(timeLimitMs, LONGEST_MS)
    this.#after(limit, () =>
      this.#end({ why: 'time limit', what: `took longer than ${duration(limit)} and was ended` })
    )
  }

  #collect(bytes: Buffer): void {
    const { maxOutput = MAX_OUTPUT } = this.options
    this.#stdoutBytes += bytes.length
    if (this.#stdoutBytes <= maxOutput) this.#stdout.push(bytes)
    else this.#end({ why: 'failed', what: `wrote more than ${maxOutput} bytes and was ended` })
  }

  #splitLines(stream: Readable | null, take: (line: string) => unknown): void {
    let wait: unknown
    const lines = new Lines(line => {
      // After its first throw the caller needs no more lines.
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
    // Not `end`, which is missing if the stream has to be destroyed.
    stream?.once('close', () => lines.end())
  }

  readonly #abort = () => this.#end({ why: 'aborted', what: 'was stopped' })

  #end(ending: Ending): void {
    if (this.#ending) return
    this.#ending = ending
    if (this.#exited) return
    killGroup(this.#child, 'SIGTERM')
    this.#after(KILL_AFTER_MS, () => killGroup(this.#child, 'SIGKILL'))
  }

  /** The program has ended; its output may still be on the way. */
  #finish(): void {
    this.#exited = true
    this.#cancel()
    killGroup(this.#child, 'SIGKILL')
    this.#after(DRAIN_MS, () =>
      // Reads what has arrived before the streams are closed.
      setImmediate(() => {
        this.#child.stdout?.destroy()
        this.#child.stderr?.destroy()
      })
    )
  }

  /** Cancels everything that could end the program. */
  #cancel(): void {
    for (const timer of this.#timers.splice(0)) clearTimeout(timer)
    this.options.signal?.removeEventListener('abort', this.#abort)
  }

  #outcome(status: number | null, by: NodeJS.Signals | null): ProgramResult {
    const stderr = this.#stderr.toString('utf8')
    const failed = (why: FailureKind, what: string) =>
      new ProgramError(this.program, why, what, status ?? undefined, stderr)
    const ending = this.#ending
    if (ending && 'thrown' in ending) throw ending.thrown
    if (ending) throw failed(ending.why, ending.what)
    if (status === null) throw failed('failed', `was killed by ${by}`)
    if (!(this.options.ok ?? [0]).includes(status)) throw failed('failed', `failed with status ${status}`)
    return { status, stdout: Buffer.concat(this.#stdout).toString('utf8'), stderr }
  }

  #notStarted(error: NodeJS.ErrnoException): ProgramError {
    const where = this.options.cwd === undefined ? '' : ` in ${JSON.stringify(this.options.cwd)}`
    return new ProgramError(
      this.program,
      'failed',
      `cannot be started${where}: ${error.code ?? error.message}`
    )
  }

  #after(ms: number, work: () => void): void {
    this.#timers.push(setTimeout(work, ms))
  }
}

/** Signals the process group of a program, which may have ended. */
export function killGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal)
  } catch {
    // The group has no process left.
  }
}

const units = [
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
  ['ms', 1]
] as const

/** Formats a duration in the largest unit without a fraction. */
function duration(ms: number): string {
  const [unit, size] = units.find(([, size]) => ms % size === 0) ?? ['ms', 1]
  return `${ms / size} ${unit}`
}

/** Whether a setpriv, by its path, knows --pdeathsig. Busybox's does not. */
const knowsPdeathsig = new Map<string, Promise<boolean>>()

/**
 * Returns a command that runs `file` so that the kernel kills it with this process. Without a suitable
 * setpriv, returns the command itself. Children of `file` are not covered.
 */
export async function withParentDeathSignal(
  file: string,
  args: readonly string[]
): Promise<[string, string[]]> {
  const setpriv = await locate('setpriv')
  if (setpriv === undefined) return [file, [...args]]
  const can = await getOrAdd(knowsPdeathsig, setpriv, canBind)
  return can ? [setpriv, ['--pdeathsig', 'KILL', '--', file, ...args]] : [file, [...args]]
}

async function canBind(setpriv: string): Promise<boolean> {
  const child = spawn(setpriv, ['--pdeathsig', 'KILL', '--', setpriv, '--version'], {
    env: {},
    stdio: 'ignore'
  })
  const [status] = await once(child, 'exit').catch(() => [undefined])
  return status === 0
}

/** Causes of failure. `failed`: a status that is not `ok`, a signal, too much output, not startable. */
export type FailureKind = 'missing' | 'failed' | 'time limit' | 'aborted'

/** The packages of Debian whose programs have another name. */
const packages: Readonly<Record<string, string>> = {
  conmand: 'conman',
  'named-checkconf': 'bind9',
  'qemu-system-x86_64': 'qemu-system-x86',
  skopeo: 'skopeo',
  umoci: 'umoci',
  sbverify: 'sbsigntool',
  sbsign: 'sbsigntool',
  'cert-to-efi-sig-list': 'efitools',
  'sign-efi-sig-list': 'efitools'
}

/** Returns what to type for a missing program; '' if its package is not known. */
export function installHint(program: string): string {
  const name = packages[basename(program)]
  return name === undefined ? '' : `: apt-get install ${name}`
}

/** A program failed; `message` is one sentence with its name and its last line of standard error. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError'

  constructor(
    readonly program: string,
    readonly kind: FailureKind,
    what: string,
    /** The exit status, if it exited. */
    readonly status?: number,
    /** The last 8 KiB of standard error. */
    readonly stderr = ''
  ) {
    const words = lastLine(stderr)
    super(`${program} ${what}${words === '' ? '' : `: ${words}`}`)
  }
}

const LONGEST_WORDS = 300

/** The last line that is not blank, made printable. */
function lastLine(stderr: string): string {
  const lines = stderr.trimEnd().split(/[\r\n]/)
  return oneLine(lines.at(-1)?.trim() ?? '', LONGEST_WORDS)
}

const O_CLOEXEC = 0o2000000

/** The limit of open files. A program cannot start with a list of streams that is longer. */
const OPEN_FILES_MAX = Number(
  /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1] ?? Number.POSITIVE_INFINITY
)

/** Descriptors above 2 that this process inherited and would pass on to programs. */
const handedOn = readdirSync('/proc/self/fd').map(Number).filter(isHandedOn)
/** A list of streams up to the limit itself could not be handed over: the last few stay as they are. */
const inherited = handedOn.filter(descriptor => descriptor < OPEN_FILES_MAX - 1 - handedOn.length)

function isHandedOn(descriptor: number): boolean {
  try {
    const [, flags = ''] =
      /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1')) ?? []
    return descriptor > 2 && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // The descriptor of the directory listing itself.
    return false
  }
}

let devNull: number | undefined

/**
 * Standard streams for a program that hide our inherited descriptors (systemd's socket, a shell's pipe)
 * behind /dev/null. Descriptors opened by Node are not inherited anyway.
 */
export function stdioWithoutInherited(
  streams: readonly (number | 'ignore' | 'pipe' | 'inherit' | 'ipc')[]
): StdioOptions {
  const first = streams.length
  const last = Math.max(first - 1, ...inherited)
  if (last >= first) devNull ??= openSync('/dev/null', 'r+')
  const others = Array.from({ length: last - first + 1 }, (_, i) =>
    inherited.includes(i + first) ? (devNull as number) : ('ignore' as const)
  )
  return [...streams, ...others]
}

/** The default environment of a program. */
export const environment = () => ({ PATH: searchPath(), HOME: process.env.HOME ?? '/', LC_ALL: 'C' })

/** The search path: PATH, and the system directories that an ordinary user's PATH lacks. */
export function searchPath(): string {
  const own = process.env.PATH || ['/usr/local/bin', '/usr/bin', '/bin'].join(delimiter)
  return [own, '/usr/local/sbin', '/usr/sbin', '/sbin'].join(delimiter)
}

/** Returns the path of an executable on the search path, or at a path with a slash; undefined without one. */
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

/** Longer lines are cut into pieces of this many characters, to bound memory. */
const LONGEST_LINE = 65_536

/** Splits a UTF-8 stream into lines. A carriage return ends a line too, as progress displays use it. */
export class Lines {
  readonly #decoder = new StringDecoder('utf8')
  #begun = ''
  #afterReturn = false

  constructor(private readonly take: (line: string) => void) {}

  add(bytes: Buffer): void {
    this.#split(this.#decoder.write(bytes))
  }

  /** Passes on an unterminated last line. */
  end(): void {
    this.#split(this.#decoder.end())
    if (this.#begun !== '') this.take(this.#begun)
    this.#begun = ''
  }

  #split(text: string): void {
    if (text === '') return
    // A CR LF in two chunks is one line end.
    const rest = this.#afterReturn && text.startsWith('\n') ? text.slice(1) : text
    this.#afterReturn = text.endsWith('\r')
    const lines = (this.#begun + rest).split(/\r\n|\n|\r/)
    this.#begun = lines.pop() ?? ''
    for (const line of lines) this.take(this.#takePieces(line))
    this.#begun = this.#takePieces(this.#begun)
  }

  /** Passes on pieces of an overlong line, and returns the rest. */
  #takePieces(line: string): string {
    let at = 0
    for (; line.length - at > LONGEST_LINE; at += LONGEST_LINE) this.take(line.slice(at, at + LONGEST_LINE))
    return line.slice(at)
  }
}
