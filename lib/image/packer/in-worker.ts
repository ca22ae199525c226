import { Worker } from 'node:worker_threads'
import { LONGEST_MS } from '../../base/concurrency.js'
import type { Contents } from './contents.js'

/** The tasks of worker.ts. An archive is written to an open file. */
export type WorkerTask =
  | { readonly kind: 'hash'; readonly file: string }
  | { readonly kind: 'measure'; readonly contents: Contents }
  | { readonly kind: 'archive'; readonly contents: Contents; readonly output: number }

/** Messages of the thread: progress (0..1), and at the end the result. */
export type WorkerMessage<T> = { readonly progress: number } | { readonly result: T }

interface WorkerOptions {
  /** For messages: "the builtin packer". */
  readonly name: string
  readonly signal?: AbortSignal | undefined
  readonly timeLimitMs?: number
  readonly progress?: (fraction: number) => void
}

/**
 * Runs a task in a worker thread and returns its result. Throws an Error when the task fails, is aborted or
 * reaches the time limit. The thread has ended then and holds no file.
 */
export async function runInWorker<T>(task: WorkerTask, options: WorkerOptions): Promise<T> {
  const { name, signal, timeLimitMs = LONGEST_MS, progress } = options
  if (signal?.aborted) throw new Error(`${name} was stopped before it began`)
  const worker = new Worker(new URL('./worker.js', import.meta.url), { workerData: task })
  let stop = () => {}
  let timer: NodeJS.Timeout | undefined
  let posted: { result: T } | undefined
  try {
    return await new Promise<T>((resolve, reject) => {
      const fail = (what: string, cause?: unknown) => reject(new Error(`${name} ${what}`, { cause }))
      stop = () => fail('was stopped')
      signal?.addEventListener('abort', stop)
      const limit = Math.min(timeLimitMs, LONGEST_MS)
      timer = setTimeout(() => fail(`took longer than ${limit / 1000} s and was ended`), limit)
      worker.on('message', (message: WorkerMessage<T>) => {
        if ('result' in message) posted = message
        else progress?.(message.progress)
      })
      worker.once('error', error => fail(`failed: ${error.message}`, error))
      worker.once('exit', () => (posted ? resolve(posted.result) : fail('ended without a result')))
    })
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
    await worker.terminate()
  }
}

export interface Hashed {
  /** In lower case hexadecimal digits. */
  readonly sha256: string
  readonly bytes: number
}

/** Returns the checksum and the size of a file. Throws an Error when it cannot be read, and when aborted. */
export const hashFile = (file: string, signal?: AbortSignal): Promise<Hashed> =>
  runInWorker<Hashed>({ kind: 'hash', file }, { name: `the checksum of ${file}`, signal })

/** Estimates the bytes of a tree's archive without holes in files, for its progress. Throws as `hashFile`. */
export const measureTree = (contents: Contents, signal: AbortSignal): Promise<number> =>
  runInWorker<number>({ kind: 'measure', contents }, { name: `the size of ${contents.tree}`, signal })
