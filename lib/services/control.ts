import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { jsonObject } from '../base/json.js'
import { clip } from '../base/log.js'
import { ProgramError, run } from '../program/program.js'

/** Verbs of the control command (rules 10.9). */
export type Verb = 'start' | 'stop' | 'restart' | 'reload' | 'status'
export const changing = ['start', 'stop', 'restart', 'reload'] as const

/** State of a server by its control command; `unknown`: the command is missing, or cannot reach systemd. */
export interface Running {
  readonly state: 'running' | 'stopped' | 'unknown'
  readonly words: string
}

const timeLimitMs = 90_000
const anyStatus = Array.from({ length: 256 }, (_, status) => status)

/** Runs a command of the ini and returns its output. Throws an Error with its words when it fails. */
export type Runner = (words: readonly string[], signal: AbortSignal) => Promise<string>

const ended = ([program = '', ...args]: readonly string[], signal: AbortSignal) =>
  run(program, args, { timeLimitMs, signal, ok: anyStatus })

/** Runs a command and returns its standard output. Throws an Error with its words when it fails. */
export const command: Runner = async (words, signal) => {
  const { status, stdout, stderr } = await ended(words, signal)
  if (status === 0) return stdout
  throw new Error(`${words.join(' ')} ended with status ${status}: ${faultSummary(`${stderr}\n${stdout}`)}`)
}

const mostWords = 600
/** Lines in which programs present themselves, around those that name the fault. */
const banner = new RegExp(
  [
    '^(?:Internet Systems Consortium|Copyright |All rights reserved|For info, please visit|\\s*\\^?\\s*$)',
    '^(?:Config file|Database file|PID file): |^Wrote \\d+ |^If you think you have received this message',
    '^than a configuration issue|^bugs on either our web|' +
      '^before submitting a bug|^process and the information',
    '^exiting\\.|^systemd\\[| (?:INFO|DEBUG) '
  ].join('|')
)
const faultWords = new RegExp(
  [
    String.raw`\bline \d|:\d+|\berror\b|fail|invalid|not |unknown|\bno |multiple|cannot|can't|unable`,
    'denied|refused|already|conflict|duplicate|missing|fatal'
  ].join('|'),
  'i'
)
/** The journal's prefix of a line. systemd's own name stays: its lines only say that the server ended. */
const ofJournal = /^\w{3} +\d+ [\d:]{8} \S+ (?:(?=systemd\[)|[^\s:]+: )/

/** Returns the lines of a program's output that name the fault, in order. */
function tellingLines(output: string): string[] {
  const lines = output.split(/\r?\n/).map(line => line.replace(ofJournal, ''))
  const said = lines.filter(line => !banner.test(line))
  const telling = said.filter(line => faultWords.test(line))
  return (telling.length > 0 ? telling : said).map(line => line.trim())
}

/** Returns the first lines that name the fault, for a message. */
const faultSummary = (output: string) => clip(tellingLines(output).slice(0, 3).join('; '), mostWords)

/** Returns the first line of a log that says why a server ended; '' where `words` holds no log. */
export function reasonOf(words: string): string {
  // systemd shows the log below the state, after an empty line.
  const log = /^ *Active: /m.test(words) ? (/\n\s*\n(.*)/s.exec(words)?.[1] ?? '') : words
  return clip(tellingLines(log)[0] ?? '', mostWords)
}

/** Asks the control command whether a server runs. */
export async function runningState(
  control: readonly string[],
  service: string,
  signal: AbortSignal
): Promise<Running> {
  const [program] = control
  // dhcpd gives its reason more than ten lines, systemd's default, before the end of its log.
  const more = program === 'systemctl' ? ['--lines=40'] : []
  try {
    const { status, stdout, stderr } = await ended([...control, 'status', service, ...more], signal)
    const words = `${stdout}${stderr}`.trim()
    // A user other than root asks systemd over dbus, which a minimal system may lack.
    if (status !== 0 && /^Failed to connect to .*\bbus\b/m.test(words))
      return {
        state: 'unknown',
        words:
          `${program} cannot ask systemd whether ${service} runs: ${words}; ` +
          'install the package dbus, or start it (systemctl start dbus)'
      }
    return { state: status === 0 ? 'running' : 'stopped', words }
  } catch (error) {
    if (error instanceof ProgramError && error.kind === 'missing')
      return { state: 'unknown', words: error.message }
    throw error
  }
}

const socketLimitMs = 30_000

/** Sends Kea config-reload; false when nobody listens. Throws Error with Kea's words if it refuses. */
export async function configReload(path: string, signal: AbortSignal): Promise<boolean> {
  const socket = connect({ path, signal })
  socket
    .setTimeout(socketLimitMs, () => socket.destroy(new Error(`${path} does not answer`)))
    .on('error', () => {})
    .write('{ "command": "config-reload" }')
  let answer = ''
  try {
    answer = await text(socket)
  } catch (error) {
    if (['ENOENT', 'ECONNREFUSED'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw error
  }
  const said = jsonObject(answer)
  if (!said) throw new Error(`kea answers ${JSON.stringify(answer.slice(0, 200))} on ${path}`)
  if (said.result === 0) return true
  throw new Error(`kea refuses its configuration: ${said.text}`)
}
