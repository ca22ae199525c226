import { escapeControls } from '../log.js'

/** A text as one line of at most `longest` characters: control characters are escaped, the rest cut off. */
export function oneLine(text: string, longest = 2000): string {
  // What is cut off need not be escaped.
  const line = escapeControls(text.slice(0, longest + 1))
  return line.length > longest ? `${line.slice(0, longest)}…` : line
}

/** Why something failed, as one line. */
export const reasonOf = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error))
