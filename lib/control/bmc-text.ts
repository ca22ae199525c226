import { escapeControls } from '../base/log.js'

/** Removes control and formatting characters, and cuts to `longest`: for logs and terminals. */
export function cleanLine(text: string, longest = 300): string {
  const line = escapeControls(
    text
      .trim()
      .slice(0, longest + 1)
      .replace(/\p{Cf}/gu, '')
  )
  return line.length > longest ? `${line.slice(0, longest)}…` : line
}

/** Makes several lines safe; empty lines are removed. */
export const cleanText = (text: string) =>
  text
    .split(/\r\n|\n|\r/)
    .map(line => cleanLine(line))
    .filter(line => line !== '')
    .join('\n')

/** Shortens a text to `longest` characters: keeps the last lines, or the beginning of a single one. */
export function shortenTo(text: string, longest: number): string {
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
