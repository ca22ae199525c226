import { escapeControls } from '../log.js'

/** One line of what a BMC says, safe in a log and on a terminal: without control and formatting characters, cut to `longest`. */
export function cleanLine(text: string, longest = 300): string {
  const line = escapeControls(
    text
      .trim()
      .slice(0, longest + 1)
      .replace(/\p{Cf}/gu, '')
  )
  return line.length > longest ? `${line.slice(0, longest)}…` : line
}

/** Several lines, each safe; those without a word are left out. */
export const cleanText = (text: string) =>
  text
    .split(/\r\n|\n|\r/)
    .map(line => cleanLine(line))
    .filter(line => line !== '')
    .join('\n')

/** A text of at most `longest` characters: of several lines the last ones, of one line its beginning. */
export function fitted(text: string, longest: number): string {
  if (text.length <= longest) return text
  const lines = text.split('\n')
  if (lines.length === 1) return `${text.slice(0, longest - 1)}…`
  const room = longest - 40
  const kept: string[] = []
  let size = 0
  for (const line of lines.reverse()) {
    size += line.length + 1
    if (size > room) break
    kept.unshift(line)
  }
  return [`… ${lines.length - kept.length} lines left out …`, ...kept].join('\n')
}
