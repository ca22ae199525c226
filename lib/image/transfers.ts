import { realpath } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { inParallel } from '../base/concurrency.js'
import { notFound } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import { exists } from '../disk/file.js'
import type { Target } from '../helper/transfer/remote.js'
import { checkSelection } from '../helper/transfer/selection.js'
import { type JobContext, RESULTS_KEPT } from '../jobs/jobs.js'
import type { Actor, Model } from '../model/model.js'
import { type SecretOwner, secretsOf } from '../model/secrets.js'
import type { Tx } from '../model/stored.js'
import { imageDirectoryOf, type OsimageDoc } from '../model/types/osimage.js'
import { type ImageContext, sameImage, unusable } from './context.js'
import { newNoteId, temporary } from './notes.js'
import { placeTree } from './tree-changes.js'
import { checkUnmounted, here, imageTree, realBelow, type Shared, treeOf, whereLooked } from './trees.js'

export { ofMachine } from '../helper/transfer/selection.js'

/** Throws 404 for fields of the image that a grab or a push cannot use. */
export function checkFields({ name, grab_filesystems, grab_exclude }: OsimageDoc): void {
  try {
    checkSelection(grab_filesystems ?? [], grab_exclude ?? [])
  } catch (error) {
    throw notFound(`OS image ${name}: ${(error as Error).message}`)
  }
}

/** Returns the arguments and hooks that a grab and a push share. Throws notFound for a node that is gone. */
function requestOf({ model, config }: ImageContext, image: OsimageDoc, changes: Changes) {
  const { signal, line, progress } = changes.job
  const args = {
    filesystems: image.grab_filesystems ?? [],
    exclude: [...config.image.identity, ...(image.grab_exclude ?? [])],
    own: secretPaths(model, changes.node),
    dryrun: changes.dryrun
  }
  const change = (text: string) => changes.add(text)
  return { args, course: { signal, timeLimitMs: config.ssh.time_limit, line, progress, change } }
}

/** Returns the paths of a node's secrets (rules 5.5), which no image may get. Throws notFound. */
function secretPaths(model: Model, name: string): string[] {
  const { group } = model.get('node', name)
  const pathsOf = (type: SecretOwner, owner: string) =>
    secretsOf(model.view, model.box, type, owner, true).map(({ path }) => path)
  return [...(group === undefined ? [] : pathsOf('group', group)), ...pathsOf('node', name)]
}

/**
 * Gathers the changes of a grab or a push on `nodes` nodes for the record of the request. Each node has its
 * share of the room, half of it for the list of changes, so that the outcome of every node is kept.
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
    // With many nodes the changes would push the outcomes out of the record.
    if (this.dryrun && this.nodes === 1) this.job.line(`${this.node}: ${text}`)
  }

  /** Runs a transfer and records its outcome as `<node>`, and its changes as `<node>.changes`. */
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

/** A node to push to. Without an address it fails, and the others go on. */
export interface Destination {
  readonly node: string
  readonly address: string | undefined
}

const namedFailures = 10

/** Returns the tree for a push. Throws 404 without one, 503 for one that cannot be used. */
export async function treeToPush(shared: Shared, image: OsimageDoc): Promise<string> {
  checkFields(image)
  const { directory } = shared.config.image
  const path = imageDirectoryOf(directory, image)
  const why = `OS image ${image.name} has no directory: there is no ${path}${whereLooked(shared, image)}`
  if (path.startsWith(`${directory}/`) && !(await exists(path))) throw notFound(why, 'image-not-ready')
  const tree = await treeOf(shared, image)
  await checkUnmounted(image.name, tree, 'pushed')
  return tree
}

/** Pushes an image to nodes, `[ssh] parallel` at once. At the end throws Error naming failed ones. */
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
  const names = failed.map(({ node }) => node)
  if (failed.length > 0)
    throw new Error(`${failed.length} of ${to.length} nodes failed: ${firstOf(names, namedFailures)}`)
}

/**
 * Returns the place of an image's tree: parent and target as placeTree takes them, and the present tree.
 * Throws unavailable (503) for a place outside `[image] directory`, and for a tree that cannot be replaced as
 * a whole.
 */
export async function placeOf(directory: string, image: OsimageDoc) {
  const path = imageDirectoryOf(directory, image)
  if (!(await exists(path))) {
    const above = dirname(path)
    if (above === directory) return { parent: '', target: basename(path), tree: undefined }
    const parent = await realBelow(directory, above).catch(error => {
      const why = `cannot be made below [image] directory ${directory}: ${error.message}`
      throw unusable(image.name, `path ${path} ${why}`)
    })
    return { parent: relative(await realpath(directory), parent), target: basename(path), tree: undefined }
  }
  const tree = await imageTree(directory, image.name, path)
  await checkUnmounted(image.name, tree, 'replaced')
  return { parent: relative(await realpath(directory), dirname(tree)), target: basename(tree), tree }
}

/** Makes a node's file systems the tree of an image, whole or not at all. A dry run only reports. */
export async function grabImage(
  context: ImageContext,
  from: Target,
  osimage: string,
  dryrun: boolean,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { model, config } = context
  const { directory } = config.image
  const image = model.get('osimage', osimage)
  const { parent, target, tree } = await placeOf(directory, image)
  const changes = new Changes(job, from.node, dryrun)
  const take = async (work: string) => {
    const { args, course } = requestOf(context, image, changes)
    const place = { tree, parent: dryrun ? '' : parent, work: basename(work) }
    await changes.during(() => context.work.call('grab', { ...args, ...from, ...place }, course))
  }
  if (dryrun) return take(join(directory, temporary(newNoteId())))
  job.line(`taking node ${from.node} into OS image ${osimage}`)
  const commit = (record: (tx: Tx, osimage: string) => void) =>
    model.change(actor, tx => {
      const now = sameImage(tx, image, `node ${from.node} was grabbed`)
      // The tree is no longer that of a container image.
      const { source, ...rest } = now
      const stored = { ...rest, path: now.path ?? join(directory, osimage), ...here(context) }
      if (source || now.path === undefined || now.controller !== stored.controller)
        tx.put('osimage', osimage, stored)
      record(tx, osimage)
    })
  const placement = { parent, target, replaces: tree !== undefined, timeLimitMs: config.ssh.time_limit }
  await placeTree(context, { ...placement, fill: take, commit }, job)
}
