import { Worker } from 'node:worker_threads'
import type { ClusterText } from './cluster-data.js'

/** A template of a file and its data, sent to the worker. */
export interface RenderRequest {
  /** Name of the file, for messages. */
  readonly name: string
  readonly template: string
  readonly data: Readonly<Record<string, unknown>>
  /** The whole cluster, if the template may use it. */
  readonly cluster?: ClusterText | undefined
}

/** A text, or an error: `motd:3:9: …`. `isShared`: it depends only on the cluster, and on name and path. */
export type RenderResult =
  | { readonly text: string; readonly isShared?: boolean }
  | { readonly problem: string }

/** Time and memory for one file: a posted template may never end. */
const longestMs = 5_000
const mostMegabytes = 64
/** Time for the worker to start, on a busy machine. */
const longestStartMs = 60_000
/** The worker ends after this time without requests. */
const idleMs = 60_000

/** Renders templates in a worker thread, which is replaced if a template takes too much time or memory. */
export class FileRenderer {
  #worker: Worker | undefined
  /** Version of the cluster that the worker has. */
  #sent: number | undefined
  #idle: NodeJS.Timeout | undefined
  #isClosed = false

  /** `longest`: time for one file, in milliseconds. */
  constructor(private readonly longest = longestMs) {}

  /** Renders one file. Calls must not overlap. Never rejects. */
  render(order: RenderRequest): Promise<RenderResult> {
    if (this.#isClosed) return Promise.resolve({ problem: 'svcd is stopping' })
    clearTimeout(this.#idle)
    const running = this.#worker
    const worker = running ?? this.#start()
    return new Promise(resolve => {
      const settle = (answer: RenderResult, isWell: boolean) => {
        clearTimeout(timer)
        worker.removeAllListeners('message')
        worker.removeAllListeners('exit')
        if (isWell) this.#startIdleTimer()
        else this.#terminate()
        resolve(answer)
      }
      const fail = (why: string) => settle({ problem: `${order.name}: ${why}` }, false)
      const begin = (ms: number) => setTimeout(() => fail(`it takes longer than ${ms / 1000} s`), ms)
      let timer = begin(worker === running ? this.longest : longestStartMs)
      worker.on('message', (answer: RenderResult | 'ready') => {
        if (answer !== 'ready') return settle(answer, true)
        clearTimeout(timer)
        timer = begin(this.longest)
      })
      // An error ends the worker as well.
      worker.once('exit', () => fail(`it takes more than ${mostMegabytes} MB of memory`))
      const { cluster } = order
      // The cluster may be megabytes, so the worker keeps it.
      worker.postMessage(
        cluster && cluster.version === this.#sent ? { ...order, cluster: { parts: [] } } : order
      )
      if (cluster) this.#sent = cluster.version
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#idle)
    await this.#worker?.terminate()
  }

  #start(): Worker {
    const worker = new Worker(new URL('./file-worker.js', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: mostMegabytes }
    })
    // The exit event reports it.
    worker.on('error', () => {})
    worker.unref()
    this.#worker = worker
    return worker
  }

  #startIdleTimer(): void {
    this.#idle = setTimeout(() => this.#terminate(), idleMs)
    this.#idle.unref()
  }

  #terminate(): void {
    const worker = this.#worker
    this.#worker = undefined
    this.#sent = undefined
    void worker?.terminate()
  }
}
