import { connect } from 'node:net'
import { ProgramError, run } from '../program/program.js'

/** What the control command is run with (rules 10.9). */
export type Verb = 'start' | 'stop' | 'restart' | 'reload' | 'status'
export const changing = ['start', 'stop', 'restart', 'reload'] as const

/** Whether a server runs, by its control command; `unknown`: that command does not exist, or does not reach systemd. */
export interface Running {
  readonly state: 'running' | 'stopped' | 'unknown'
  /** The command's words. */
  readonly words: string
}

const timeLimitMs = 90_000
const anyStatus = Array.from({ length: 256 }, (_, status) => status)

/** Runs a command of the ini to its end and gives its output. Throws an Error with its words when it fails. */
export type Runner = (words: readonly string[], signal: AbortSignal) => Promise<string>

/** Runs a command to its end. Throws an Error with the end of its output when it fails. */
export async function command(words: readonly string[], signal: AbortSignal): Promise<string> {
  const [program = '', ...args] = words
  const { status, stdout, stderr } = await run(program, args, { timeLimitMs, signal, ok: anyStatus })
  if (status === 0) return stdout
  throw new Error(`${words.join(' ')} ended with status ${status}: ${essence(`${stderr}\n${stdout}`)}`)
}

const mostWords = 600
/** What programs print about themselves before they say what is wrong. */
const banner =
  /^(?:Internet Systems Consortium|Copyright |All rights reserved|For info, please visit|\s*\^?\s*$)/

/** The lines of a program's output that say what is wrong: those that name a line or an error, else the last ones. */
function essence(output: string): string {
  const lines = output.split(/\r?\n/).filter(line => !banner.test(line))
  const telling = lines.filter(line => /\bline \d|:\d+|\berror\b|fail|invalid|not |unknown/i.test(line))
  const said = (telling.length > 0 ? telling.slice(0, 3) : lines.slice(-3))
    .map(line => line.trim())
    .join('; ')
  return said.length > mostWords ? `${said.slice(0, mostWords)}…` : said
}

/** Whether the server runs. */
export async function runningState(
  control: readonly string[],
  service: string,
  signal: AbortSignal
): Promise<Running> {
  const [program = '', ...args] = [...control, 'status', service]
  try {
    const { status, stdout, stderr } = await run(program, args, { timeLimitMs, signal, ok: anyStatus })
    const words = `${stdout}${stderr}`.trim()
    // A user other than root asks systemd over dbus, which a minimal system may lack.
    if (status !== 0 && /^Failed to connect to .*\bbus\b/m.test(words))
      return {
        state: 'unknown',
        words: `${program} cannot ask systemd whether ${service} runs: ${words}; install the package dbus, or start it (systemctl start dbus)`
      }
    return { state: status === 0 ? 'running' : 'stopped', words }
  } catch (error) {
    if (error instanceof ProgramError && error.why === 'missing')
      return { state: 'unknown', words: error.message }
    throw error
  }
}

const socketLimitMs = 30_000

/**
 * Sends Kea the command config-reload; false when nobody listens on the socket. Throws an Error with Kea's words when
 * Kea refuses, and when `signal` ends the wait.
 */
export function configReload(path: string, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect({ path, signal }, () => socket.write('{ "command": "config-reload" }'))
    socket
      .setEncoding('utf8')
      .setTimeout(socketLimitMs, () => socket.destroy(new Error(`${path} does not answer`)))
    socket.on('data', text => {
      answer += text
    })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') resolve(false)
      else reject(error)
    })
    socket.on('end', () => {
      try {
        const { result, text } = JSON.parse(answer)
        if (result === 0) resolve(true)
        else reject(new Error(`kea refuses its configuration: ${text}`))
      } catch {
        reject(new Error(`kea answers ${JSON.stringify(answer.slice(0, 200))} on ${path}`))
      }
    })
  })
}
