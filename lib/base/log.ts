import { isUtf8 } from 'node:buffer'
import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** Levels of lines on stderr (journald). Lines never hold a token, a password or a body (rules 11.7). */
type Level = 'error' | 'warn' | 'info' | 'debug'

const order: readonly Level[] = ['error', 'warn', 'info', 'debug']
// journald reads the syslog priority from this prefix; terminals get none.
const toJournal = process.env.JOURNAL_STREAM !== undefined
const priority: Record<Level, string> = { error: '<3>', warn: '<4>', info: '<6>', debug: '<7>' }

export interface Log {
  level: Level
  error(message: string): void
  warn(message: string): void
  info(message: string): void
  debug(message: string): void
}

/** Characters that control a terminal, change the direction of text, or are invisible. */
const CONTROLS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u
const ALL_CONTROLS = new RegExp(CONTROLS, 'gu')
/** JSON's escapes: two for a character beyond the first 65,536. */
const escaped = (character: string) =>
  character.replace(/./gs, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** Escapes characters that control a terminal or are invisible, so that a line stays a line. */
export const escapeControls = (text: string) =>
  // Testing first costs less than replacing nothing; there may be tens of thousands of lines per second.
  CONTROLS.test(text) ? text.replace(ALL_CONTROLS, escaped) : text

/** Blanks that look like a space, and signs that look like nothing. */
const LOOKALIKES = /[\u2800\ufffc]|[^\S \t\r\n]/gu

/** `escapeControls` for faulty texts: also escapes whatever looks like a space. */
export const visible = (text: string) => escapeControls(text).replace(LOOKALIKES, escaped)

/** Escapes everything but ASCII, for a header. */
export const ascii = (text: string) => text.replace(/[^\x20-\x7e]/g, escaped)

/** Cuts a text that is too long for a message. */
export const clip = (text: string, longest: number) =>
  text.length > longest ? `${text.slice(0, longest)}…` : text

/** Joins the first entries of a list for a message: `a, b and 3 more`, or with `; `: `a; b; and 3 more`. */
export function firstOf(all: readonly string[], most: number, separator: ', ' | '; ' = ', '): string {
  const more = all.length > most ? `${separator === '; ' ? ';' : ''} and ${all.length - most} more` : ''
  return `${all.slice(0, most).join(separator)}${more}`
}

/** Returns a text as one line of at most `longest` characters, with control characters escaped. */
export function oneLine(text: string, longest = 2000): string {
  // Clipped first: the rest need not be escaped.
  const line = escapeControls(text.slice(0, longest + 1))
  return clip(line, longest)
}

/** Returns a file name on one line, control characters escaped; if not UTF-8, all non-ASCII bytes too. */
export function shown(name: Buffer): string {
  const text = isUtf8(name)
    ? name.toString('utf8')
    : name.toString('latin1').replace(/[\u0080-\u00ff]/g, octal)
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, octal)
}

const octal = (character: string) =>
  Buffer.from(character, character < '\u0100' ? 'latin1' : 'utf8').reduce(
    (text, byte) => `${text}\\${byte.toString(8).padStart(3, '0')}`,
    ''
  )

/** Creates a log of lines of `level` and above; control characters are escaped. */
export function createLog(level: Level, write: (line: string) => void = toStandardError()): Log {
  const line = (at: Level) => (message: string) => {
    if (order.indexOf(at) <= order.indexOf(log.level)) write(lineOf(at, message))
  }
  const log: Log = {
    level,
    error: line('error'),
    warn: line('warn'),
    info: line('info'),
    debug: line('debug')
  }
  return log
}

function lineOf(at: Level, message: string): string {
  const text = escapeControls(message)
  return toJournal ? `${priority[at]}${text}\n` : `${isoNow()} ${at} ${text}\n`
}

let lastMs = 0
let lastText = ''

/** The time of day, formatted once per millisecond: there may be tens of thousands of lines per second. */
function isoNow(): string {
  const now = Date.now()
  if (now !== lastMs) {
    lastMs = now
    lastText = new Date(now).toISOString()
  }
  return lastText
}

/** Writes to standard error; flushes when the process exits. */
function toStandardError(): (line: string) => void {
  const output = logOutput({
    write: standardError(),
    recovered: (reason, lost) =>
      output.write(lineOf('warn', `the log could not be written (${reason}); ${lost} lines are lost`))
  })
  process.once('exit', output.flush)
  return output.write
}

/** Bound of waiting bytes; further lines are dropped, to bound memory. */
const MOST_WAITING = 1024 * 1024
const RETRY_MS = 1000

/** Options of an output; tests pass their own. */
interface LogOutputOptions {
  /** Writes some of the bytes and returns their number; throws if nothing can be written now. */
  readonly write: (bytes: Buffer) => number
  /** Called when writing works again: why it failed, and the number of lost lines. */
  readonly recovered: (reason: string, lost: number) => void
  readonly retryMs?: number
}

/** A longer line is cut: one that found no room would be lost without a word. */
const LONGEST_LINE = 64 << 10

/**
 * Writes the lines of one turn of the event loop together, as each write is expensive. A full disk or a stuck
 * reader blocks nobody: up to 1 MiB of lines waits and is retried each second; more are dropped and counted.
 * `flush` writes what can be written now.
 */
export function logOutput({ write, recovered, retryMs = RETRY_MS }: LogOutputOptions) {
  let lines: string[] = []
  let waiting = 0
  /** The unwritten bytes of earlier lines. */
  let rest: Buffer = Buffer.alloc(0)
  let problem = ''
  let lost = 0

  const flush = () => {
    const text = Buffer.from(lines.join(''))
    rest = rest.length === 0 ? text : Buffer.concat([rest, text])
    lines = []
    try {
      while (rest.length > 0) rest = rest.subarray(write(rest))
    } catch (error) {
      problem = (error as NodeJS.ErrnoException).code ?? String(error)
      waiting = rest.length
      setTimeout(flush, retryMs).unref()
      return
    }
    waiting = 0
    if (problem === '') return
    const [why, missing] = [problem, lost]
    problem = ''
    lost = 0
    recovered(why, missing)
  }
  return {
    write(whole: string) {
      const line = whole.length > LONGEST_LINE ? `${whole.slice(0, LONGEST_LINE)}…\n` : whole
      if (waiting + line.length > MOST_WAITING) {
        lost++
        return
      }
      if (lines.length === 0 && problem === '') setImmediate(flush)
      lines.push(line)
      waiting += line.length
    },
    flush
  }
}

/** Writes to standard error without waiting for the reader of a pipe. */
function standardError(): (bytes: Buffer) => number {
  const descriptor = withoutWaiting()
  return bytes => writeSync(descriptor, bytes)
}

function withoutWaiting(): number {
  try {
    // Our own open file: the flag must not affect others that share the pipe.
    if (fstatSync(2).isFIFO()) return openSync('/proc/self/fd/2', constants.O_WRONLY | constants.O_NONBLOCK)
  } catch {
    // It was opened by another user, or its reader has gone.
  }
  return 2
}
