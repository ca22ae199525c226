import { escapeControls } from '../base/log.js'

/** An error that ends a command with an exit code (rules 14.3). */
export class Failure extends Error {
  constructor(
    readonly code: 1 | 2 | 3,
    message: string,
    /** The refusal had this HTTP status. */
    readonly status?: number
  ) {
    super(message)
  }
}

/** 1: the controller refuses, or the request failed. */
export const refused = (message: string, status?: number) => new Failure(1, message, status)
/** The refusal of an empty node set. */
export const namesNone = (set: string) => refused(`${clean(set)} names no node: nothing was done`)
/** 2: the command line is wrong. */
export const wrongUsage = (message: string) => new Failure(2, message)
/** 3: there is no controller, or another server answers. */
export const noController = (message: string) => new Failure(3, message)

/** The terminal, environment and files of this process. Tests replace them. */
export interface Terminal {
  /** Whether stdout, stderr and stdin are terminals. */
  readonly shows: { readonly out: boolean; readonly err: boolean; readonly in: boolean }
  readonly env: Readonly<Record<string, string | undefined>>
  /** Writes to stdout and waits for a slow reader. Rejects if the reader is gone. */
  out(text: string): Promise<void>
  err(text: string): void
  /** Asks a question; resolves to whether the answer is yes. */
  confirmed(question: string): Promise<boolean>
  /** Asks for a text without echo. */
  hidden(question: string): Promise<string>
  /** Passes each typed key on, unread by the terminal. Returns a function that ends that. */
  typed(take: (text: string) => void): () => void
  /** Opens a text in the editor; returns the result. Throws Failure 1 if the editor fails. */
  edited(text: string): Promise<string>
  input(): Promise<Buffer>
  /** Reads a whole file. Throws Failure 2 if it cannot be read. */
  file(path: string): Promise<Buffer>
}

/** Escapes control characters, so that a text cannot control the terminal (rules 14.4). */
export const clean = escapeControls

/** The same for a text of several lines. */
export const cleanLines = (text: string) => text.split('\n').map(clean).join('\n')

const colours = { bold: 1, dim: 2, red: 31, green: 32 } as const

/** Colours a text on a terminal unless NO_COLOR is set (no-color.org). */
export type Paint = (colour: keyof typeof colours, text: string) => string

/** Returns the painter for stdout or stderr. */
export const paintFor = ({ shows, env }: Terminal, stream: 'out' | 'err'): Paint => {
  const isPlain = !shows[stream] || (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb'
  return isPlain ? (_, text) => text : (colour, text) => `\u001b[${colours[colour]}m${text}\u001b[0m`
}
