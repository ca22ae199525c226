import type { JobContext } from '../jobs/jobs.js'

/** Changes of one node that are listed; all are counted. */
const mostListed = 20_000

/** Gathers what a grab or a push of one node changes, for the record of the job. */
export class Changes {
  readonly #listed: string[] = []

  constructor(
    readonly job: JobContext,
    readonly node: string,
    readonly dryrun: boolean
  ) {}

  add(text: string): void {
    if (this.#listed.length < mostListed) this.#listed.push(text)
    if (this.dryrun) this.job.line(`${this.node}: ${text}`)
  }

  /** Runs a transfer; the record says then how it went: `<node>` the outcome, `<node>.changes` the list. */
  async during(work: () => Promise<{ readonly changes: number }>): Promise<void> {
    const { job, node, dryrun } = this
    try {
      const { changes } = await work()
      job.line(`${node}: ${changes} ${changes === 1 ? 'change' : 'changes'}${dryrun ? ', none made' : ''}`)
      job.result(node, { state: 'done', changes })
    } catch (error) {
      job.result(node, { state: 'failed', message: (error as Error).message })
      throw error
    } finally {
      job.result(`${node}.changes`, this.#listed)
    }
  }
}
