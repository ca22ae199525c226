import { type ChildProcess, spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { programEnv } from './programs.js'

/** A program that runs until it is stopped. */
export interface Child {
  readonly pid: number
  /** All it has written to standard output and standard error. */
  log(): string
  /** SIGTERM, and SIGKILL if that is not heeded within 15 s; resolves when it has ended. */
  stop(): Promise<void>
  /** SIGKILL; resolves when it has ended. */
  kill(): Promise<void>
}

const stopLimitMs = 15_000

/** Resolves with the exit status or signal name when the process has ended. */
export const ended = (child: ChildProcess): Promise<number | string | null> =>
  new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(code ?? signal))
  })

/**
 * Starts `command` and waits until `ready` says so (asked again and again with what was written so far).
 * @throws Error with everything the program wrote when it ends first or is not ready in time.
 */
export async function startChild(
  command: readonly string[],
  ready: (log: string) => boolean | Promise<boolean>,
  readyLimitMs = 30_000
): Promise<Child> {
  const [program = '', ...args] = command
  const child = spawn(program, args, { env: programEnv(), stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  child.stdout.setEncoding('utf8').on('data', text => (log += text))
  child.stderr.setEncoding('utf8').on('data', text => (log += text))
  let status: number | string | null | undefined
  const end = ended(child).then(
    value => (status = value),
    error => (status = String(error))
  )
  const stop = async () => {
    const timer = setTimeout(() => child.kill('SIGKILL'), stopLimitMs)
    child.kill('SIGTERM')
    await end
    clearTimeout(timer)
  }
  const kill = async () => {
    child.kill('SIGKILL')
    await end
  }
  const giveUp = Date.now() + readyLimitMs
  while (!(await ready(log))) {
    if (status !== undefined) throw new Error(`${command.join(' ')} ended with ${status}:\n${log}`)
    if (Date.now() > giveUp) {
      await stop()
      throw new Error(`${command.join(' ')} was not ready in time:\n${log}`)
    }
    await Promise.race([sleep(50), end])
  }
  return { pid: child.pid ?? 0, log: () => log, stop, kill }
}
