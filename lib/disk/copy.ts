import { type FileHandle, open, stat } from 'node:fs/promises'

const chunkBytes = 1 << 20

/** Copies an open file, which it closes, to a new one (0600); durable but for its name when it resolves. */
export async function copyTo(from: FileHandle, to: string, signal: AbortSignal): Promise<void> {
  try {
    const into = await open(to, 'wx', 0o600)
    try {
      const chunk = Buffer.allocUnsafe(chunkBytes)
      for (;;) {
        signal.throwIfAborted()
        const { bytesRead } = await from.read(chunk, 0, chunk.length, null)
        if (bytesRead === 0) break
        await into.writeFile(chunk.subarray(0, bytesRead))
      }
      await into.sync()
    } finally {
      await into.close()
    }
  } finally {
    await from.close()
  }
}

/** Whether two files hold the same. */
export async function sameBytes(one: string, other: string, signal: AbortSignal): Promise<boolean> {
  const [a, b] = [await open(one), await open(other)]
  try {
    if ((await a.stat()).size !== (await b.stat()).size) return false
    const [ofA, ofB] = [Buffer.allocUnsafe(chunkBytes), Buffer.allocUnsafe(chunkBytes)]
    for (;;) {
      signal.throwIfAborted()
      const [bytes, others] = await Promise.all([fill(a, ofA), fill(b, ofB)])
      if (!ofA.subarray(0, bytes).equals(ofB.subarray(0, others))) return false
      if (bytes === 0) return true
    }
  } finally {
    await Promise.all([a.close(), b.close()])
  }
}

/** Reads on until the buffer is full or the file ends. */
async function fill(file: FileHandle, buffer: Buffer): Promise<number> {
  let filled = 0
  for (;;) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, null)
    filled += bytesRead
    if (bytesRead === 0 || filled === buffer.length) return filled
  }
}

/** Makes the contents of a file durable, and gives it its mode. */
export async function finish(file: string, mode: number): Promise<void> {
  const handle = await open(file, 'r')
  try {
    await handle.chmod(mode)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * The mode of what is put into the files directory. Packs hold secrets of the image, so they are the daemon's
 * alone; where the directory is setgid, its group, which is the seeder's, may read.
 */
export async function servedMode(directory: string): Promise<number> {
  const { mode } = await stat(directory)
  return mode & 0o2000 ? 0o640 : 0o600
}
