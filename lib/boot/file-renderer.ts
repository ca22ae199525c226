import { Worker } from 'node:worker_threads'
import type { ClusterText } from './cluster-data.js'

/** A template of a file and its data, which go to the thread. */
export interface RenderOrder {
  /** For messages: the name of the file. */
  readonly name: string
  readonly template: string
  readonly data: Readonly<Record<string, unknown>>
  /** The whole cluster, where the template may see it. */
  readonly cluster?: ClusterText | undefined
}

/**
 * The text, or why there is none: `motd:3:9: the map has no item 'x'`. `isShared`: it was made of the cluster, the name and
 * the path of the file alone.
 */
export type RenderAnswer =
  | { readonly text: string; readonly isShared?: boolean }
  | { readonly problem: string }

/** The longest time and the most memory for one file: whoever may post a template may post one that never ends. */
const longestMs = 5_000
const mostMegabytes = 64
/** The longest start of the thread, on a machine that has much to do. */
const longestStartMs = 60_000
/** The thread ends when nobody has asked for so long. */
const idleMs = 60_000

/** Renders templates in a thread of its own, which is ended and started anew where one takes too much. */
export class FileRenderer {
  #worker: Worker | undefined
  /** The cluster that the thread has. */
  #sent: number | undefined
  #idle: NodeJS.Timeout | undefined
  #isClosed = false

  /** `longest`: milliseconds, the longest time for one file. */
  constructor(private readonly longest = longestMs) {}

  /** One at a time: not to be called again before it has resolved. It never rejects. */
  render(order: RenderOrder): Promise<RenderAnswer> {
    if (this.#isClosed) return Promise.resolve({ problem: 'svcd is stopping' })
    clearTimeout(this.#idle)
    const running = this.#worker
    const worker = running ?? this.#start()
    return new Promise(resolve => {
      const settle = (answer: RenderAnswer, isWell: boolean) => {
        clearTimeout(timer)
        worker.removeAllListeners('message')
        worker.removeAllListeners('exit')
        if (isWell) this.#rest()
        else this.#drop()
        resolve(answer)
      }
      const fail = (why: string) => settle({ problem: `${order.name}: ${why}` }, false)
      const begin = (ms: number) => setTimeout(() => fail(`it takes longer than ${ms / 1000} s`), ms)
      let timer = begin(worker === running ? this.longest : longestStartMs)
      worker.on('message', (answer: RenderAnswer | 'ready') => {
        if (answer !== 'ready') return settle(answer, true)
        clearTimeout(timer)
        timer = begin(this.longest)
      })
      // An error ends the thread as well.
      worker.once('exit', () => fail(`it takes more than ${mostMegabytes} MB of memory`))
      const { cluster } = order
      // It may be megabytes, which the thread keeps.
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
    // What it says is said by its end.
    worker.on('error', () => {})
    worker.unref()
    this.#worker = worker
    return worker
  }

  #rest(): void {
    this.#idle = setTimeout(() => this.#drop(), idleMs)
    this.#idle.unref()
  }

  #drop(): void {
    const worker = this.#worker
    this.#worker = undefined
    this.#sent = undefined
    void worker?.terminate()
  }
}
