import { inParallel } from '../concurrency.js'
import { exists } from '../disk/missing.js'
import { notFound } from '../errors.js'
import type { JobContext } from '../jobs/jobs.js'
import { meantTree, type OsimageDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { Changes, checkFields, requestOf } from './transfers.js'
import { checkUnmounted, treeOf, whereLooked } from './trees.js'

/** A node to push to. One without an address fails, and the others go on. */
export interface Destination {
  readonly node: string
  readonly address: string | undefined
}

const namedFailures = 10

/** The tree that a push takes. Throws 404 for an image without one, 503 for one that cannot be used (rules 3.12, 9.8). */
export async function treeToPush(
  shared: Pick<ImageContext, 'config' | 'controllers'>,
  image: OsimageDoc
): Promise<string> {
  checkFields(image)
  const { directory } = shared.config.image
  const path = meantTree(directory, image)
  if (path.startsWith(`${directory}/`) && !(await exists(path)))
    throw notFound(
      `OS image ${image.name} has no directory: there is no ${path}${whereLooked(shared, image)}`
    )
  const tree = await treeOf(shared, image)
  await checkUnmounted(image.name, tree, 'pushed')
  return tree
}

/**
 * Pushes an image to nodes, `[ssh] parallel` of them at once. One that fails does not stop the others. Throws an Error
 * that names those that failed.
 */
export async function pushImage(
  context: ImageContext,
  to: readonly Destination[],
  osimage: string,
  dryrun: boolean,
  job: JobContext
): Promise<void> {
  const { model, config } = context
  const image = model.get('osimage', osimage)
  const tree = await treeToPush(context, image)
  const failed: { node: string; message: string }[] = []
  const fractions = new Map<string, number>()
  let sum = 0
  const progress = (node: string, fraction: number) => {
    sum += fraction - (fractions.get(node) ?? 0)
    fractions.set(node, fraction)
    job.progress(sum / to.length)
  }
  await inParallel(to, config.ssh.parallel, async ({ node, address }) => {
    job.signal.throwIfAborted()
    const changes = new Changes(job, node, dryrun, to.length)
    const copy = async () => {
      if (address === undefined) throw new Error(`node ${node} has no address to be reached at`)
      const { args, course } = requestOf(context, image, changes)
      return context.work.call(
        'push',
        { ...args, node, address, tree },
        {
          ...course,
          line: text => job.line(`${node}: ${text}`),
          progress: fraction => progress(node, fraction)
        }
      )
    }
    await changes.during(copy).catch(({ message }: Error) => {
      job.signal.throwIfAborted()
      failed.push({ node, message })
      job.line(`${node}: failed: ${message}`)
    })
    progress(node, 1)
  })
  if (to.length === 1 && failed[0]) throw new Error(failed[0].message)
  if (failed.length > 0) {
    const names = failed.slice(0, namedFailures).map(({ node }) => node)
    const more = failed.length - names.length
    throw new Error(
      `${failed.length} of ${to.length} nodes failed: ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
    )
  }
}
