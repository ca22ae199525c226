import { type ChildProcess, spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { programEnv } from './programs.js'

/** A program that runs until it is stopped. */
export interface Child {
  /** All it has written to standard output and standard error. */
  log(): string
  /** SIGTERM, and SIGKILL if that is not heeded within 15 s; resolves when it has ended. */
  stop(): Promise<void>
}

const stopLimitMs = 15_000
const readyLimitMs = 30_000

/** Resolves with the exit status or signal name when the process has ended. */
export const ended = (child: ChildProcess): Promise<number | string | null> =>
  new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(code ?? signal))
  })

/**
 * Starts `command` and waits until `ready` says so (asked again and again with what was written so far).
 * @throws Error with everything the program wrote when it ends first or is not ready within 30 s.
 */
export async function startChild(
  command: readonly string[],
  ready: (log: string) => boolean | Promise<boolean>
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
  const giveUp = Date.now() + readyLimitMs
  while (!(await ready(log))) {
    if (status !== undefined) throw new Error(`${command.join(' ')} ended with ${status}:\n${log}`)
    if (Date.now() > giveUp) {
      await stop()
      throw new Error(`${command.join(' ')} was not ready in time:\n${log}`)
    }
    await Promise.race([sleep(50), end])
  }
  return { log: () => log, stop }
}
