import { logOutput, standardError } from './log-output.js'

/** One line per request and per change on stderr (journald); never a token, a password or a body (rules 11.7). */
export type Level = 'error' | 'warn' | 'info' | 'debug'

const order: readonly Level[] = ['error', 'warn', 'info', 'debug']
// journald reads the syslog priority from this prefix; a terminal is spared it.
const toJournal = process.env.JOURNAL_STREAM !== undefined
const priority: Record<Level, string> = { error: '<3>', warn: '<4>', info: '<6>', debug: '<7>' }

export interface Log {
  level: Level
  error(message: string): void
  warn(message: string): void
  info(message: string): void
  debug(message: string): void
}

/** What a terminal would obey, that changes the direction of what stands there, or that is not seen. */
const CONTROLS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u
const ALL_CONTROLS = new RegExp(CONTROLS, 'gu')
/** As JSON writes it: a character beyond the first 65,536 is two. */
const escaped = (character: string) =>
  character.replace(/./gs, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** A text without characters that steer a terminal or are not seen: they are escaped, so that a line stays a line. */
export const escapeControls = (text: string) =>
  // To look first costs less than to replace nothing: there may be tens of thousands of lines in a second.
  CONTROLS.test(text) ? text.replace(ALL_CONTROLS, escaped) : text

/** Blanks that look like a space, and signs that look like none. */
const LOOKALIKES = /[\u2800\ufffc]|[^\S \t\r\n]/gu

/** The same for a text that is told as wrong: what cannot be told from a space is escaped, too. */
export const visible = (text: string) => escapeControls(text).replace(LOOKALIKES, escaped)

/** The same in ASCII, for a header. */
export const ascii = (text: string) => text.replace(/[^\x20-\x7e]/g, escaped)

/** A text as one line of at most `longest` characters: control characters are escaped, the rest cut off. */
export function oneLine(text: string, longest = 2000): string {
  // What is cut off need not be escaped.
  const line = escapeControls(text.slice(0, longest + 1))
  return line.length > longest ? `${line.slice(0, longest)}…` : line
}

/** A log that writes lines of `level` and above; control characters are escaped, so a line stays a line. */
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

let shownMs = 0
let shown = ''

/** The time of day. Its text is made once a millisecond: there may be tens of thousands of lines in a second. */
function isoNow(): string {
  const now = Date.now()
  if (now !== shownMs) {
    shownMs = now
    shown = new Date(now).toISOString()
  }
  return shown
}

/** What waits when the process exits is written then. */
function toStandardError(): (line: string) => void {
  const output = logOutput({
    write: standardError(),
    recovered: (reason, lost) =>
      output.write(lineOf('warn', `the log could not be written (${reason}); ${lost} lines are lost`))
  })
  process.once('exit', output.flush)
  return output.write
}
