import { isUtf8 } from 'node:buffer'
import { logOutput, standardError } from './log-output.js'

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
