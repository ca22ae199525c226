import { type FileHandle, open, rm } from 'node:fs/promises'

const chunkBytes = 1 << 20

/** Does work with a file or a directory that is opened for it, and closes it. */
export async function withOpen<T>(
  opened: Promise<FileHandle>,
  work: (handle: FileHandle) => Promise<T>
): Promise<T> {
  const handle = await opened
  try {
    return await work(handle)
  } finally {
    await handle.close()
  }
}

/**
 * Makes a file (0600) that must not be there yet, and has it filled; `owner` gets it. When that fails, it is removed and
 * what failed is thrown.
 */
export async function fillNew<T>(
  path: string,
  fill: (file: FileHandle) => Promise<T>,
  owner?: { readonly uid: number; readonly gid: number }
): Promise<T> {
  return withOpen(open(path, 'wx', 0o600), async file => {
    try {
      if (owner !== undefined) await file.chown(owner.uid, owner.gid)
      return await fill(file)
    } catch (error) {
      await rm(path, { force: true })
      throw error
    }
  })
}

/** Copies an open file, which it closes, to a new one (0600); durable but for its name when it resolves. */
export async function copyTo(
  from: FileHandle,
  to: string,
  signal: AbortSignal,
  owner?: { readonly uid: number; readonly gid: number }
): Promise<void> {
  try {
    await fillNew(
      to,
      async into => {
        const chunk = Buffer.allocUnsafe(chunkBytes)
        for (;;) {
          signal.throwIfAborted()
          const { bytesRead } = await from.read(chunk, 0, chunk.length, null)
          if (bytesRead === 0) break
          await into.writeFile(chunk.subarray(0, bytesRead))
        }
        await into.sync()
      },
      owner
    )
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
      const [bytes, others] = await Promise.all([fillBuffer(a, ofA), fillBuffer(b, ofB)])
      if (!ofA.subarray(0, bytes).equals(ofB.subarray(0, others))) return false
      if (bytes === 0) return true
    }
  } finally {
    await Promise.all([a.close(), b.close()])
  }
}

/** Reads on until the buffer is full or the file ends; gives the bytes that were read. */
export async function fillBuffer(file: FileHandle, buffer: Buffer): Promise<number> {
  let filled = 0
  for (;;) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, null)
    filled += bytesRead
    if (bytesRead === 0 || filled === buffer.length) return filled
  }
}

/** Makes the contents of a file durable, and gives it a mode. */
export const syncFile = (file: string, mode: number): Promise<void> =>
  withOpen(open(file, 'r'), async handle => {
    await handle.chmod(mode)
    await handle.sync()
  })
