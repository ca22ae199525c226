import { type ChildProcess, spawn } from 'node:child_process'
import { programEnv } from './programs.js'
import { until } from './until.js'

/** How a program ended, and what it wrote. */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A program that was started. */
export interface Child {
  readonly process: ChildProcess
  readonly pid: number
  readonly ended: Promise<Ended>
  /** Both its streams as far as they have come. */
  output(): string
  /**
   * Resolves with the text once the output has it, or what matches.
   * @throws Error with the output when the program ends without it.
   */
  says(what: string | RegExp): Promise<string>
  /** SIGTERM, and SIGKILL if that is not heeded within 15 s; resolves when it has ended. */
  stop(): Promise<void>
  /** SIGKILL; resolves when it has ended. */
  kill(): Promise<void>
}

const stopLimitMs = 15_000

/**
 * Starts a program by its argument array; it ends with this process, kill -9 included. `input` is its whole
 * standard input, absent: an open pipe.
 */
export function start(
  program: string,
  args: readonly string[],
  { input, env }: { input?: string | Uint8Array; env?: Record<string, string> } = {}
): Child {
  // The runner gives every child its own module loader; the program under test is to run as it is. Each of
  // these becomes the next, so that pid and signals are the program's.
  const words = ['--pdeathsig', 'KILL', 'env', '--unset=NODE_OPTIONS', program, ...args]
  const child = spawn('setpriv', words, { env: { ...programEnv(), ...env } })
  const wrote = { stdout: '', stderr: '' }
  let seen = ''
  const waiting = new Set<() => void>()
  for (const stream of ['stdout', 'stderr'] as const)
    child[stream].setEncoding('utf8').on('data', (text: string) => {
      wrote[stream] += text
      seen += text
      for (const look of waiting) look()
    })
  // A program that ends without reading it all.
  child.stdin.on('error', () => {})
  if (input !== undefined) child.stdin.end(input)
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ code, signal, ...wrote }))
  })
  const says = (what: string | RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const found = typeof what === 'string' ? seen.includes(what) && what : what.exec(seen)?.[0]
        if (typeof found !== 'string') return
        waiting.delete(look)
        resolve(found)
      }
      waiting.add(look)
      look()
      ended.then(() => reject(new Error(`${program} ended without ${what}, after: ${seen}`)), reject)
    })
  const kill = async () => {
    child.kill('SIGKILL')
    await ended
  }
  const stop = async () => {
    const timer = setTimeout(() => child.kill('SIGKILL'), stopLimitMs)
    child.kill('SIGTERM')
    await ended
    clearTimeout(timer)
  }
  return { process: child, pid: child.pid ?? 0, ended, output: () => seen, says, stop, kill }
}

/**
 * Starts a command without input and waits until `ready` says so, asked again and again with what it wrote so
 * far.
 * @throws Error with all that it wrote when it ends first.
 */
export async function startChild(
  [program = '', ...args]: readonly string[],
  ready: (output: string) => boolean | Promise<boolean>
): Promise<Child> {
  const child = start(program, args, { input: '' })
  let isOver = false
  void child.ended.finally(() => {
    isOver = true
  })
  let isReady = false
  const look = async () => {
    // Before it is asked: what was written last counts too.
    const wasOver = isOver
    isReady = await ready(child.output())
    return isReady || wasOver
  }
  try {
    await until(look, () => child.output())
    if (!isReady) throw new Error(`${program} ${args.join(' ')} ended:\n${child.output()}`)
    return child
  } catch (error) {
    await child.kill()
    throw error
  }
}
