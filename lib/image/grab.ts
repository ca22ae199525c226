import { realpath } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { exists } from '../disk/file.js'
import type { Target } from '../helper/transfer/remote.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import type { Tx } from '../model/stored.js'
import { imageDirectoryOf, type OsimageDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { newNoteId, temporary } from './notes.js'
import { sameImage, unusable } from './refusals.js'
import { Changes, requestOf } from './transfers.js'
import { placeTree } from './tree-changes.js'
import { checkUnmounted, here, imageTree, realBelow } from './trees.js'

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

/**
 * Makes a node's file systems the tree of an image. The old tree stays until the new one is whole. An image
 * without a path gets `<[image] directory>/<its name>`. A dry run only reports what would change.
 */
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
