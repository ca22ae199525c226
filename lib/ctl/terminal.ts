import { escapeControls } from '../log.js'

/** What ends a command; the exit code is its kind (rules 14.3). */
export class Failure extends Error {
  constructor(
    readonly code: 1 | 2 | 3,
    message: string,
    /** The status that the controller refused with. */
    readonly status?: number
  ) {
    super(message)
  }
}

/** 1: the controller refuses, or what it was asked for has failed. */
export const refused = (message: string, status?: number) => new Failure(1, message, status)
/** The refusal of a set without a node. */
export const namesNone = (set: string) => refused(`${clean(set)} names no node: nothing was done`)
/** 2: the command line is wrong. */
export const wrongUsage = (message: string) => new Failure(2, message)
/** 3: there is no controller, or what answers is none. */
export const noController = (message: string) => new Failure(3, message)

/** The person who types the commands, and the machine that this runs on. */
export interface Terminal {
  /** Whether a person reads stdout, reads stderr, and types on stdin. */
  readonly shows: { readonly out: boolean; readonly err: boolean; readonly in: boolean }
  readonly env: Readonly<Record<string, string | undefined>>
  /** Writes to stdout, and waits while its reader is slow. Rejects when the reader is gone. */
  out(text: string): Promise<void>
  err(text: string): void
  /** A question that is answered by y or n. */
  confirmed(question: string): Promise<boolean>
  /** A text that is typed without echo. */
  hidden(question: string): Promise<string>
  /** A text as a person leaves it in the editor. Throws Failure 1 where the editor ends in a failure. */
  edited(text: string): Promise<string>
  /** All of stdin. */
  input(): Promise<Buffer>
  /** All of a file. Throws Failure 2 where it cannot be read. */
  file(path: string): Promise<Buffer>
}

/** A text on one line that cannot steer a terminal (rules 14.4). */
export const clean = escapeControls

/** The same of a text of several lines. */
export const cleanLines = (text: string) => text.split('\n').map(clean).join('\n')

const colours = { bold: 1, dim: 2, red: 31, green: 32 } as const

/** Puts a colour around a text where a person reads it, and does not object (no-color.org). */
export type Paint = (colour: keyof typeof colours, text: string) => string

/** The colours of stdout or of stderr. */
export const paintFor = ({ shows, env }: Terminal, stream: 'out' | 'err'): Paint => {
  const isPlain = !shows[stream] || (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb'
  return isPlain ? (_, text) => text : (colour, text) => `\u001b[${colours[colour]}m${text}\u001b[0m`
}
