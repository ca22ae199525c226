import { runInThread } from '../../base/thread.js'
import type { Limits } from '../../program/program.js'
import type { Contents } from './contents.js'

/** The tasks of worker.ts. An archive is written to an open file. */
export type WorkerTask =
  | { readonly kind: 'hash'; readonly file: string }
  | { readonly kind: 'unpacked'; readonly program: string; readonly file: string }
  | { readonly kind: 'measure'; readonly contents: Contents }
  | { readonly kind: 'plain'; readonly from: number; readonly to: number; readonly most: number }
  | { readonly kind: 'archive'; readonly contents: Contents; readonly output: number }

/** The thread for them. */
export const WORKER = new URL('./worker.js', import.meta.url)

export interface Hashed {
  /** In lower case hexadecimal digits. */
  readonly sha256: string
  readonly bytes: number
}

/** Returns the checksum and the size of a file. Throws an Error when it cannot be read, and when aborted. */
export const hashFile = (file: string, signal?: AbortSignal): Promise<Hashed> =>
  runInThread(WORKER, { kind: 'hash', file }, { name: `the checksum of ${file}`, signal })

/** Returns checksum and size of what a decompressor makes of a file. Throws as `hashFile`. */
export const hashUnpacked = (program: string, file: string, signal: AbortSignal): Promise<Hashed> =>
  runInThread(WORKER, { kind: 'unpacked', program, file }, { name: `the checksum of ${file}`, signal })

/** Copies a tar between open files, with sparse files in full (plain-tar.ts). Throws Error. */
export const plainTar = (from: number, to: number, most: number, limits: Limits): Promise<void> =>
  runInThread(WORKER, { kind: 'plain', from, to, most }, { name: 'the reading of the tar', ...limits })

/** Estimates the bytes of a tree's archive without holes in files, for its progress. Throws as `hashFile`. */
export const measureTree = (contents: Contents, signal: AbortSignal): Promise<number> =>
  runInThread(WORKER, { kind: 'measure', contents }, { name: `the size of ${contents.tree}`, signal })
