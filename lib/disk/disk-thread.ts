import { Worker } from 'node:worker_threads'
import { type DiskStep, StepError } from './steps.js'

interface Asked {
  done(): void
  failed(error: Error): void
}

/**
 * Carries out steps on the disk in a thread of its own: several system calls cost the event loop one message, where each
 * call of node:fs/promises costs it a wait of its own. The thread starts with the first steps, and does not keep the process alive.
 */
export class DiskThread {
  #worker: Worker | undefined
  /** In the order in which they were asked for: the answers come in the same. */
  #asked: Asked[] = []

  /**
   * Resolves when all steps are done. Rejects with a StepError for the first that fails; those after it are not begun. Another
   * Error: the thread has ended, and what was done is not known.
   */
  carryOut(steps: readonly DiskStep[]): Promise<void> {
    return new Promise((done, failed) => {
      this.#worker ??= this.#start()
      this.#worker.postMessage(steps)
      if (this.#asked.push({ done, failed }) === 1) this.#worker.ref()
    })
  }

  #start(): Worker {
    const worker = new Worker(new URL('./steps-worker.js', import.meta.url), { execArgv: [] })
    worker.on('message', (failure?: StepError) => {
      // The answers of a thread that has ended may come after its error.
      if (this.#worker !== worker) return
      const asked = this.#asked.shift()
      if (this.#asked.length === 0) worker.unref()
      if (failure) asked?.failed(new StepError(failure.message, failure.step, failure.code, failure.errno))
      else asked?.done()
    })
    worker.once('error', error => this.#ended(worker, error))
    worker.once('exit', status =>
      this.#ended(worker, new Error(`the thread for the disk ended with ${status}`))
    )
    return worker
  }

  /** The next steps get a new thread; whether those under way were done is not known. */
  #ended(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { failed } of this.#asked.splice(0)) failed(error)
  }
}
