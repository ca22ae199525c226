import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** Lines beyond these wait no longer: what cannot be written must not fill the memory. */
const MOST_WAITING = 1024 * 1024
const RETRY_MS = 1000

/** Where lines of the log go. */
export interface LogOutput {
  write(line: string): void
  /** Writes what waits, as far as it can be written now. */
  flush(): void
}

/** What an output is made of; a test puts its own in. */
export interface LogOutputOptions {
  /** Writes some of the bytes and returns how many; a throw says that nothing can be written now. */
  readonly write: (bytes: Buffer) => number
  /** Called when lines can be written again: why they could not, and how many were lost meanwhile. */
  readonly recovered: (reason: string, lost: number) => void
  readonly retryMs?: number
}

/**
 * Lines of one turn of the event loop are written together: a write for each costs more than what it tells of. A full
 * disk, a reader that has gone or does not read stops nobody: lines wait then, 1 MiB of them, and are tried again each
 * second; those beyond are lost and counted.
 */
export function logOutput({ write, recovered, retryMs = RETRY_MS }: LogOutputOptions): LogOutput {
  let lines: string[] = []
  let waiting = 0
  /** Bytes of lines that were begun. */
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
    write(line) {
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

/** Writes to standard error, never waiting for who reads a pipe. */
export function standardError(): (bytes: Buffer) => number {
  const descriptor = withoutWaiting()
  return bytes => writeSync(descriptor, bytes)
}

function withoutWaiting(): number {
  try {
    // An opening of our own: the flag is then not that of others who have the same pipe.
    if (fstatSync(2).isFIFO()) return openSync('/proc/self/fd/2', constants.O_WRONLY | constants.O_NONBLOCK)
  } catch {
    // It was opened by another user, or its reader has gone.
  }
  return 2
}
