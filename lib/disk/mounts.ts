import { readFile, realpath } from 'node:fs/promises'
import { unlessMissing } from './missing.js'

/**
 * Mount points at or below a directory, from /proc/self/mountinfo and in its order: what is mounted in a mount comes
 * after it. Two mounts on one place are there twice. None for a directory that does not exist.
 */
export async function mountsBelow(directory: string): Promise<string[]> {
  const real = await unlessMissing(realpath(directory), undefined)
  if (real === undefined) return []
  const below = real === '/' ? '/' : `${real}/`
  const lines = (await readFile('/proc/self/mountinfo', 'latin1')).split('\n')
  return lines
    .map(line => unescaped(line.split(' ')[4] ?? ''))
    .filter(point => point === real || point.startsWith(below))
}

/** Blanks, tabs, ends of lines and backslashes stand there as three octal digits. */
function unescaped(field: string): string {
  const bytes = field.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)))
  return Buffer.from(bytes, 'latin1').toString('utf8')
}
