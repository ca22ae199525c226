import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** Bound of waiting bytes; further lines are dropped, to bound memory. */
const MOST_WAITING = 1024 * 1024
const RETRY_MS = 1000

/** Options of an output; tests pass their own. */
interface LogOutputOptions {
  /** Writes some of the bytes and returns their number; throws if nothing can be written now. */
  readonly write: (bytes: Buffer) => number
  /** Called when writing works again: why it failed, and the number of lost lines. */
  readonly recovered: (reason: string, lost: number) => void
  readonly retryMs?: number
}

/** A longer line is cut: one that found no room would be lost without a word. */
const LONGEST_LINE = 64 << 10

/**
 * Writes the lines of one turn of the event loop together, as each write is expensive. A full disk or a stuck
 * reader blocks nobody: up to 1 MiB of lines waits and is retried each second; more are dropped and counted.
 * `flush` writes what can be written now.
 */
export function logOutput({ write, recovered, retryMs = RETRY_MS }: LogOutputOptions) {
  let lines: string[] = []
  let waiting = 0
  /** The unwritten bytes of earlier lines. */
  let rest: Buffer = Buffer.alloc(0)
  let problem = ''
  let lost = 0

  const flush = () => {
    const text = Buffer.from(lines.join(''))
    rest = rest.length === 0 ? text : Buffer.concat([rest, text])
    lines = []
    try {
      while (rest.length > 0) rest = rest.subarray(write(rest))
    } catch (error) {
      problem = (error as NodeJS.ErrnoException).code ?? String(error)
      waiting = rest.length
      setTimeout(flush, retryMs).unref()
      return
    }
    waiting = 0
    if (problem === '') return
    const [why, missing] = [problem, lost]
    problem = ''
    lost = 0
    recovered(why, missing)
  }
  return {
    write(whole: string) {
      const line = whole.length > LONGEST_LINE ? `${whole.slice(0, LONGEST_LINE)}…\n` : whole
      if (waiting + line.length > MOST_WAITING) {
        lost++
        return
      }
      if (lines.length === 0 && problem === '') setImmediate(flush)
      lines.push(line)
      waiting += line.length
    },
    flush
  }
}

/** Writes to standard error without waiting for the reader of a pipe. */
export function standardError(): (bytes: Buffer) => number {
  const descriptor = withoutWaiting()
  return bytes => writeSync(descriptor, bytes)
}

function withoutWaiting(): number {
  try {
    // Our own open file: the flag must not affect others that share the pipe.
    if (fstatSync(2).isFIFO()) return openSync('/proc/self/fd/2', constants.O_WRONLY | constants.O_NONBLOCK)
  } catch {
    // It was opened by another user, or its reader has gone.
  }
  return 2
}
