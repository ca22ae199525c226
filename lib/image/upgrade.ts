import { basename, join } from 'node:path'
import { theDaemon } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import { meantTree, type OsimageDoc } from '../model/types/osimage.js'
import type { Tx, View } from '../model/view.js'
import type { ImageContext } from './context.js'

/**
 * Brings what an earlier version stored of image directories into today's form, in one change. Throws what a change
 * throws.
 */
export async function upgradeState({ config, model }: ImageContext): Promise<void> {
  const { directory } = config.image
  const isOld = slashed(model.view, directory).length > 0 || ownerless(model.view, directory).length > 0
  if (!isOld) return
  await model.change(theDaemon, tx => {
    plainPaths(tx, directory)
    for (const { name, osimage } of ownerless(tx, directory)) {
      const tree = tx.get('tree', name)
      if (tree) tx.put('tree', name, { ...tree, osimage })
    }
  })
}

/** A rename marked the `path` that it gave by a slash at the end, and stored no record of the directory. */
function plainPaths(tx: Tx, directory: string): void {
  for (const { path, ...image } of slashed(tx, directory)) {
    const tree = basename(path)
    tx.put('osimage', image.name, { ...image, path: join(directory, tree) })
    if (!tx.get('tree', tree)) tx.put('tree', tree, { name: tree, osimage: image.name })
  }
}

function slashed(view: View, directory: string): (OsimageDoc & { readonly path: string })[] {
  return images(view).flatMap(image => {
    const { path } = image
    const isMarked = path === `${join(directory, basename(path ?? ''))}/` && isObjectName(basename(path))
    return isMarked ? [{ ...image, path }] : []
  })
}

/**
 * The records of directories that do not say whose they are, and the image that each belongs to: the one that means the
 * directory. A record that no image means is left out: nobody knows whose the directory is, so it stays.
 */
function ownerless(view: View, directory: string): { readonly name: string; readonly osimage: string }[] {
  const owners = new Map(images(view).map(image => [meantTree(directory, image), image.name]))
  return [...view.names('tree')].flatMap(name => {
    const osimage = owners.get(join(directory, name))
    return osimage !== undefined && view.get('tree', name)?.osimage === undefined ? [{ name, osimage }] : []
  })
}

const images = (view: View): OsimageDoc[] =>
  [...view.names('osimage')].flatMap(name => view.get('osimage', name) ?? [])
