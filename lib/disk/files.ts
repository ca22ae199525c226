import { open, rename, rm } from 'node:fs/promises'
import { syncDirectory } from './directory.js'
import { replaceFile } from './replace.js'

/** A file open for appending. */
export interface LogFile {
  appendFile(text: string): Promise<void>
  datasync(): Promise<void>
  truncate(sizeBytes: number): Promise<void>
  close(): Promise<void>
}

/** Every write of the store and its journals goes through here, so that tests can make it fail or wait. */
export interface FileLayer {
  /**
   * The file has its old content or the new one, never a part; its content is durable, its name not yet. A text in pieces
   * is made as it is written, a piece in each turn of the event loop.
   */
  replace(file: string, text: string | Iterable<string>): Promise<void>
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
  replace: replaceFile,
  remove: file => rm(file, { force: true }),
  rename,
  syncDirectory,

  async openLog(file, empty) {
    const handle = await open(file, 'a', 0o600)
    if (empty) await handle.truncate(0)
    return handle
  }
}
