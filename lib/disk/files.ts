import { constants } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { syncDirectory } from './directory.js'
import { DiskThread } from './disk-thread.js'
import { unlessMissing } from './missing.js'
import { replaceFile } from './replace.js'
import { APPENDING, type DiskStep, namedLink } from './steps.js'

/** A file open for appending. */
export interface LogFile {
  /** For steps that append to it. */
  readonly fd: number
  appendFile(text: string): Promise<void>
  datasync(): Promise<void>
  truncate(sizeBytes: number): Promise<void>
  close(): Promise<void>
}

/** Every write of the store and its journals goes through here, so that tests can make it fail or wait. */
export interface FileLayer {
  /** Carries out steps one after the other. Rejects with a StepError for the first that fails; those after it are not begun. */
  inOrder(steps: readonly DiskStep[]): Promise<void>
  /**
   * As the step of that name. A text in pieces is made as it is written, a piece in each turn of the event loop: for one
   * that may be long.
   */
  replace(file: string, text: string | Iterable<string>): Promise<void>
  rename(from: string, to: string): Promise<void>
  /** As the step of that name. */
  syncDirectory(directory: string): Promise<void>
  /** Opens for appending (made 0600 when missing); `empty`: what it held is gone. */
  openLog(file: string, empty: boolean): Promise<LogFile>
}

const thread = new DiskThread()

/** The real file system. */
export const realFiles: FileLayer = {
  inOrder: steps => thread.carryOut(steps),
  replace: replaceFile,
  rename,
  syncDirectory,

  async openLog(file, empty) {
    const found = await unlessMissing(open(file, APPENDING), undefined).catch(error => {
      throw namedLink(file, error)
    })
    const handle = found ?? (await open(file, APPENDING | constants.O_CREAT, 0o600))
    if (empty) await handle.truncate(0)
    return handle
  }
}
