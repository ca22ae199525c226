import { Thread } from '../base/thread.js'
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
  readonly #thread = new Thread<RenderRequest, RenderResult>(new URL('./file-worker.js', import.meta.url), {
    maxOldGenerationSizeMb: mostMegabytes
  })
  /** Version of the cluster that the worker has. */
  #sent: number | undefined
  #idle: NodeJS.Timeout | undefined
  #isClosed = false

  /** `longest`: time for one file, in milliseconds. */
  constructor(private readonly longest = longestMs) {}

  /** Renders one file. Calls must not overlap. Never rejects. */
  async render(order: RenderRequest): Promise<RenderResult> {
    if (this.#isClosed) return { problem: 'svcd is stopping' }
    clearTimeout(this.#idle)
    try {
      if (!this.#thread.isRunning) {
        this.#sent = undefined
        await this.#ask({ name: '', template: '', data: {} }, longestStartMs)
      }
      const { cluster } = order
      // The cluster may be megabytes, so the worker keeps it.
      const isSent = cluster !== undefined && cluster.version === this.#sent
      const answer = await this.#ask(
        isSent ? { ...order, cluster: { version: cluster.version, parts: [] } } : order,
        this.longest
      )
      if (cluster) this.#sent = cluster.version
      return answer
    } catch (error) {
      return { problem: `${order.name}: ${(error as Error).message}` }
    } finally {
      this.#idle = setTimeout(() => void this.#thread.stop(), idleMs).unref()
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#idle)
    await this.#thread.stop()
  }

  /** Throws Error when it takes too long, and when the thread ends, which lack of memory does. */
  async #ask(order: RenderRequest, ms: number): Promise<RenderResult> {
    let why = `it takes more than ${mostMegabytes} MB of memory`
    const timer = setTimeout(() => {
      why = `it takes longer than ${ms / 1000} s`
      void this.#thread.stop()
    }, ms)
    try {
      return await this.#thread.ask(order)
    } catch (cause) {
      throw new Error(why, { cause })
    } finally {
      clearTimeout(timer)
    }
  }
}
