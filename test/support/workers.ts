import type { Worker } from 'node:worker_threads'
import type { Test } from 'tap'

/**
 * Counts the worker threads that start from now on and have not ended. `/proc/self/task` is no measure of it:
 * the kernel may list a thread for a moment after it was joined.
 */
export function workersFrom(t: Test): { running(): number; started(): number } {
  const workers: Worker[] = []
  const add = (worker: Worker) => workers.push(worker)
  process.on('worker', add)
  t.teardown(() => process.off('worker', add))
  return {
    running: () => workers.filter(worker => worker.threadId !== -1).length,
    started: () => workers.length
  }
}
