import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

/** What is read at once. */
const blockBytes = 256 * 1024

/** From the end of a file no more is looked at: what is before that many bytes is not found. */
const mostScannedBytes = 16 * 1024 * 1024

/** A line of a file. */
export interface LastLine {
  /** Without its newline; of a long line the first 256 KiB. */
  readonly text: string
  /** Of the whole line. */
  readonly bytes: number
  readonly isWhole: boolean
}

/**
 * The lines at the end of a file, the last one first, from its last 16 MiB. What comes after the last newline is none: it
 * may be on its way still. A block is read when its lines are asked for. Throws as `open` and `read` do.
 */
export async function* lastLines(file: string): AsyncGenerator<LastLine, void, undefined> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    let { size: end } = await handle.stat()
    const from = Math.max(0, end - mostScannedBytes)
    let isEnded = false
    let line = { kept: Buffer.alloc(0), bytes: 0 }
    while (end > from) {
      const length = Math.min(end - from, blockBytes)
      end -= length
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, end)
      for (let to = bytesRead, at = to; at !== -1; to = at) {
        at = to === 0 ? -1 : buffer.lastIndexOf(10, to - 1)
        const part = buffer.subarray(at + 1, to)
        // Of a long line the beginning is kept, which comes last.
        const kept = Buffer.concat([part, line.kept]).subarray(0, blockBytes)
        line = { kept, bytes: line.bytes + part.length }
        if (at === -1) break
        if (isEnded) yield shown(line)
        isEnded = true
        line = { kept: Buffer.alloc(0), bytes: 0 }
      }
    }
    if (isEnded && end === 0) yield shown(line)
  } finally {
    await handle.close()
  }
}

const shown = ({ kept, bytes }: { kept: Buffer; bytes: number }): LastLine => ({
  text: kept.toString('utf8'),
  bytes,
  isWhole: bytes === kept.length
})
