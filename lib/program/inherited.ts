import type { StdioOptions } from 'node:child_process'
import { openSync, readdirSync, readFileSync } from 'node:fs'

const O_CLOEXEC = 0o2000000

/** What this process was given when it was started, beside standard input and output, and would hand on to programs. */
const inherited = readdirSync('/proc/self/fd').map(Number).filter(isHandedOn)

function isHandedOn(descriptor: number): boolean {
  try {
    const [, flags = ''] =
      /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1')) ?? []
    return descriptor > 2 && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // It was that of the directory that was read.
    return false
  }
}

let nothing: number | undefined

/**
 * The standard streams of a program to start, so that it gets no descriptor that this process was started with: such as the
 * socket of systemd's, or a pipe of the shell. In their place it has /dev/null. What node opens itself is not handed on.
 */
export function withoutInherited(
  streams: readonly (number | 'ignore' | 'pipe' | 'inherit' | 'ipc')[]
): StdioOptions {
  const first = streams.length
  const last = Math.max(first - 1, ...inherited)
  if (last >= first) nothing ??= openSync('/dev/null', 'r+')
  const others = Array.from({ length: last - first + 1 }, (_, i) =>
    inherited.includes(i + first) ? (nothing as number) : ('ignore' as const)
  )
  return [...streams, ...others]
}
