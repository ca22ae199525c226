import { readFileSync } from 'node:fs'
import { readFile, realpath } from 'node:fs/promises'
import { unlessMissing } from './missing.js'

/**
 * The mount points in the text of a /proc/self/mountinfo, in its order: what is mounted in a mount comes after it, and
 * two mounts on one place are there twice. Other lines are left out, as a login shell may write some before it.
 */
export const mountPoints = (mountinfo: string): string[] =>
  mountinfo.split('\n').flatMap(line => {
    const point = /^\d+ \d+ \d+:\d+ [^ ]+ (\/[^ ]*) /.exec(line)?.[1]
    // Blanks, tabs, ends of lines and backslashes stand there as three octal digits.
    return point?.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))) ?? []
  })

/**
 * Mount points at or below a directory, as `mountPoints` gives them. None for a directory that does not exist. Bytes
 * that are not UTF-8 are U+FFFD.
 */
export async function mountsBelow(directory: string): Promise<string[]> {
  const real = await unlessMissing(realpath(directory), undefined)
  if (real === undefined) return []
  const below = real === '/' ? '/' : `${real}/`
  return mountPoints(await readFile('/proc/self/mountinfo', 'utf8')).filter(
    point => point === real || point.startsWith(below)
  )
}

/** Which mount an open file was reached through, by its descriptor: its device says nothing of a bind mount. */
export const mountOf = (fd: number): string | undefined =>
  /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1]
