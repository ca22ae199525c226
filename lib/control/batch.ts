import { inParallel, turnForStep } from '../concurrency.js'
import { type JobContext, RESULTS_KEPT } from '../jobs/jobs.js'
import { fitted } from './words.js'

/** How many nodes one request may name: each has its result in the record. */
export const MOST_NODES = 10_000

/** What a result takes in the record beside its text and its name. */
const AROUND_RESULT = 45
const NAMED_FAILURES = 10

/** The result of one node, as the record holds it. */
export interface NodeResult {
  readonly state: 'done' | 'failed'
  readonly message: string
}

/**
 * Does something with each of many nodes, `parallel` at once, and puts the result of each into the record. A node that fails
 * stops no other. At the end throws an Error that names those that failed; throws the reason when the job is stopped.
 */
export async function batch(
  job: JobContext,
  nodes: readonly string[],
  parallel: number,
  act: (node: string) => Promise<string>
): Promise<void> {
  const failed: string[] = []
  let ended = 0
  // Half of it is for what JSON adds to a text.
  const room = Math.floor(RESULTS_KEPT / nodes.length)
  const note = (node: string, state: NodeResult['state'], text: string) => {
    const most = Math.max(20, room > 1000 ? room / 2 : room - node.length - AROUND_RESULT)
    const message = fitted(text, Math.floor(most))
    job.result(node, { state, message })
    const [first = ''] = message.split('\n', 1)
    job.line(`${node}: ${state === 'failed' ? `failed: ${first}` : first}`)
    job.progress(++ended / nodes.length)
  }
  await inParallel(nodes, parallel, async node => {
    // What fails at once, as a node without a BMC does, waits for nothing.
    await turnForStep()
    job.signal.throwIfAborted()
    try {
      note(node, 'done', await act(node))
    } catch (error) {
      job.signal.throwIfAborted()
      failed.push(node)
      note(node, 'failed', (error as Error).message)
    }
  })
  if (failed.length === 0) return
  const more = failed.length - NAMED_FAILURES
  const names = `${failed.slice(0, NAMED_FAILURES).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
  throw new Error(`${failed.length} of ${nodes.length} nodes failed: ${names}`)
}
