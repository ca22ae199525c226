import { Worker } from 'node:worker_threads'

/** What a worker thread of ours posts: how far it is (0..1), and at the end its result. */
export type Posted<T> = { readonly progress: number } | { readonly result: T }

export interface WorkerOptions {
  /** For messages: "the builtin packer". */
  readonly name: string
  readonly workerData: unknown
  readonly signal?: AbortSignal | undefined
  readonly timeLimitMs?: number
  readonly progress?: (fraction: number) => void
}

const LONGEST_TIMER_MS = 2 ** 31 - 1

/**
 * Runs a module in a worker thread until it posts its result. Throws an Error when the module throws, when it is
 * stopped by the signal, and at the time limit; the thread has ended by then and holds no file any more.
 */
export async function inWorker<T>(module: URL, options: WorkerOptions): Promise<T> {
  const { name, workerData, signal, timeLimitMs = LONGEST_TIMER_MS, progress } = options
  if (signal?.aborted) throw new Error(`${name} was stopped before it began`)
  const worker = new Worker(module, { workerData })
  let stop = () => {}
  let timer: NodeJS.Timeout | undefined
  let posted: { result: T } | undefined
  try {
    return await new Promise<T>((resolve, reject) => {
      const fail = (what: string, cause?: unknown) => reject(new Error(`${name} ${what}`, { cause }))
      stop = () => fail('was stopped')
      signal?.addEventListener('abort', stop)
      const limit = Math.min(timeLimitMs, LONGEST_TIMER_MS)
      timer = setTimeout(() => fail(`took longer than ${limit / 1000} s and was ended`), limit)
      worker.on('message', (message: Posted<T>) => {
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
