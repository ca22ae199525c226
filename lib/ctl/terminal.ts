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
  /** All of stdin. */
  input(): Promise<Buffer>
  /** All of a file. Throws Failure 2 where it cannot be read. */
  file(path: string): Promise<Buffer>
}

/** What a terminal would obey, that changes the direction of what stands there, or that is not seen. */
const steering = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu
/** As JSON writes it: one beyond the first 65,536 is two. */
const escaped = (character: string) =>
  character
    .split('')
    .map(unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('')

/** A text on one line that cannot steer a terminal (rules 14.4). */
export const clean = (text: string) => text.replace(steering, escaped)

/** The same of a text of several lines. */
export const cleanLines = (text: string) =>
  text.replace(steering, character => (character === '\n' ? character : escaped(character)))

const colours = { bold: 1, dim: 2, red: 31, green: 32 } as const

/** Puts a colour around a text where a person reads it, and does not object (no-color.org). */
export type Paint = (colour: keyof typeof colours, text: string) => string

/** The colours of stdout or of stderr. */
export const paintFor = ({ shows, env }: Terminal, stream: 'out' | 'err'): Paint => {
  const isPlain = !shows[stream] || (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb'
  return isPlain ? (_, text) => text : (colour, text) => `\u001b[${colours[colour]}m${text}\u001b[0m`
}
