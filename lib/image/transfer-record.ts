import { type JobContext, RESULTS_KEPT } from '../jobs/jobs.js'

/**
 * Gathers what a grab or a push changes on one of `nodes` nodes, for the record of the job: each has its share of the
 * record's room, half of it for the list, so that the outcome of every node is kept.
 */
export class Changes {
  readonly #listed: string[] = []
  readonly #share: number
  #size = 0
  #leftOut = 0

  constructor(
    readonly job: JobContext,
    readonly node: string,
    readonly dryrun: boolean,
    readonly nodes = 1
  ) {
    this.#share = Math.floor(RESULTS_KEPT / nodes / 2)
  }

  add(text: string): void {
    const size = JSON.stringify(text).length + 1
    if (this.#leftOut === 0 && this.#size + size <= this.#share - 100) {
      this.#size += size
      this.#listed.push(text)
    } else this.#leftOut++
    // Of many nodes they would push the outcomes out of the record.
    if (this.dryrun && this.nodes === 1) this.job.line(`${this.node}: ${text}`)
  }

  /** Runs a transfer; the record says then how it went: `<node>` the outcome, `<node>.changes` the list. */
  async during(work: () => Promise<{ readonly changes: number }>): Promise<void> {
    const { job, node, dryrun } = this
    try {
      const { changes } = await work()
      const listed = this.#leftOut === 0 ? '' : `, the first ${this.#listed.length} listed`
      const what = `${changes} ${changes === 1 ? 'change' : 'changes'}${dryrun ? ', none made' : ''}`
      job.line(`${node}: ${what}${listed}`)
      job.result(node, { state: 'done', changes })
    } catch (error) {
      const { message } = error as Error
      job.result(node, { state: 'failed', message: message.slice(0, Math.max(0, this.#share - 200)) })
      throw error
    } finally {
      job.result(`${node}.changes`, this.#listed)
    }
  }
}
