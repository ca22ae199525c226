import { notFound } from '../errors.js'
import type { Course } from '../helper/course.js'
import { type JobContext, RESULTS_KEPT } from '../jobs/jobs.js'
import type { Model } from '../model/model.js'
import { type SecretOwner, secretsOf } from '../model/secrets.js'
import type { OsimageDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { checkSelection } from './transfer/selection.js'

/** Throws 404 for fields of the image that a grab or a push cannot use. */
export function checkFields({ name, grab_filesystems, grab_exclude }: OsimageDoc): void {
  try {
    checkSelection(grab_filesystems ?? [], grab_exclude ?? [])
  } catch (error) {
    throw notFound(`OS image ${name}: ${(error as Error).message}`)
  }
}

/** What a grab and a push are told alike, and how they report. Throws notFound for a node that is gone. */
export const requestOf = ({ model, config }: ImageContext, image: OsimageDoc, changes: Changes) => ({
  args: {
    filesystems: image.grab_filesystems ?? [],
    exclude: [...config.image.identity, ...(image.grab_exclude ?? [])],
    own: secretPaths(model, changes.node),
    dryrun: changes.dryrun
  },
  course: {
    signal: changes.job.signal,
    timeLimitMs: config.ssh.time_limit,
    line: (text: string) => changes.job.line(text),
    progress: (fraction: number) => changes.job.progress(fraction),
    change: (text: string) => changes.add(text)
  } satisfies Course
})

/**
 * Where the secrets of a node and of its group lie on the node (rules 5.5). An image that held them would give them
 * to every node. Throws notFound for a node that is gone.
 */
function secretPaths(model: Model, name: string): string[] {
  const { group } = model.get('node', name)
  const pathsOf = (type: SecretOwner, owner: string) =>
    secretsOf(model.view, model.box, type, owner, true).map(({ path }) => path)
  return [...(group === undefined ? [] : pathsOf('group', group)), ...pathsOf('node', name)]
}

/**
 * Gathers what a grab or a push changes on one of `nodes` nodes, for the record of the request. Each node has its share
 * of the record's room, half of it for the list of changes, so that the outcome of every node is kept.
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
    // The changes of many nodes would push the outcomes out of the record.
    if (this.dryrun && this.nodes === 1) this.job.line(`${this.node}: ${text}`)
  }

  /** Runs a transfer and notes in the record how it went: the outcome as `<node>`, the list as `<node>.changes`. */
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
