const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g

/** A text as one line of at most `longest` characters: control characters are escaped, the rest cut off. */
export function oneLine(text: string, longest = 2000): string {
  // What is cut off need not be escaped.
  const line = text
    .slice(0, longest + 1)
    .replace(CONTROL, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return line.length > longest ? `${line.slice(0, longest)}…` : line
}

/** Why something failed, as one line. */
export const reasonOf = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error))
