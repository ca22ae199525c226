import { Worker } from 'node:worker_threads'
import type { RenderJob, RenderOutcome } from './render-job.js'

/**
 * Renders in a worker thread, so that the event loop goes on; `signal` ends it. Throws the thread's error.
 */
export function renderInThread(job: RenderJob, signal: AbortSignal): Promise<RenderOutcome> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const worker = new Worker(new URL('./render-worker.js', import.meta.url), { workerData: job })
    const stop = () => void worker.terminate()
    signal.addEventListener('abort', stop)
    worker.once('message', resolve)
    worker.once('error', reject)
    worker.once('exit', status => {
      signal.removeEventListener('abort', stop)
      reject(new Error(`the thread that renders ended with ${status}`))
    })
  })
}
