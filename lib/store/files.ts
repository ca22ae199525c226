import { mkdir, open, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import writeFileAtomic from 'write-file-atomic'

/** A file open for appending. */
export interface LogFile {
  appendFile(text: string): Promise<void>
  datasync(): Promise<void>
  truncate(sizeBytes: number): Promise<void>
  close(): Promise<void>
}

/** Every write of the store and its journals goes through here, so that tests can make it fail or wait. */
export interface FileLayer {
  /** The file has its old content or the new one, never a part; its content is durable, its name not yet. */
  replace(file: string, text: string): Promise<void>
  /** A missing file is fine. The removal is not durable yet. */
  remove(file: string): Promise<void>
  rename(from: string, to: string): Promise<void>
  /** Makes the names in a directory durable. */
  syncDirectory(directory: string): Promise<void>
  /** Opens for appending (made 0600 when missing); `empty`: what it held is gone. */
  openLog(file: string, empty: boolean): Promise<LogFile>
}

/** The real file system. */
export const realFiles: FileLayer = {
  async replace(file, text) {
    // write-file-atomic takes one write(2) for the whole: on a disk that fills up, a short count and so half a file.
    // writeFile goes on until all is written or fails; the library's fsync, on the same inode, then covers it.
    await writeFileAtomic(file, '', { mode: 0o600, tmpfileCreated: temporary => writeFile(temporary, text) })
  },

  async remove(file) {
    await rm(file, { force: true })
  },

  rename,

  async syncDirectory(directory) {
    const handle = await open(directory, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  },

  async openLog(file, empty) {
    const handle = await open(file, 'a', 0o600)
    if (empty) await handle.truncate(0)
    return handle
  }
}

/** Makes a directory (0700) where there is none; it outlives a power cut. */
export async function makeDirectory(directory: string, files: FileLayer): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = resolve(directory); made.length >= first.length; made = dirname(made)) {
    await files.syncDirectory(dirname(made))
  }
}

/** Runs `work` on every item, at most `limit` at a time. Ends when none is running; throws the first failure. */
export async function inParallel<V>(
  items: Iterable<V>,
  limit: number,
  work: (item: V) => Promise<void>
): Promise<void> {
  const left = items[Symbol.iterator]()
  let failure: { error: unknown } | undefined
  const worker = async () => {
    for (let item = left.next(); !item.done && failure === undefined; item = left.next()) {
      try {
        await work(item.value)
      } catch (error) {
        failure ??= { error }
      }
    }
  }
  await Promise.all(Array.from({ length: limit }, worker))
  if (failure !== undefined) throw failure.error
}
