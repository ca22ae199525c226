import { realpathSync } from 'node:fs'
import { realpath } from 'node:fs/promises'
import { basename, dirname, join, normalize } from 'node:path'
import { exists } from '../disk/missing.js'
import { unavailable } from '../errors.js'
import type { OsimageDoc } from '../model/tables.js'
import type { View } from '../model/view.js'
import { imageTree, mountsBelow } from './tree.js'

/** The tree that an image means: its path or, without one, what is named like it in `[image] directory`. */
export const meantTree = (directory: string, { name, path }: OsimageDoc) =>
  // A slash at the end says nothing.
  path === undefined ? join(directory, name) : normalize(path).replace(/(?<=.)\/+$/, '')

/**
 * The real directory of an image; undefined where it has no path and nothing is named like it. Throws unavailable
 * (503) for what imageTree refuses.
 */
export async function treeIfAny(directory: string, image: OsimageDoc): Promise<string | undefined> {
  const path = meantTree(directory, image)
  if (image.path === undefined && !(await exists(path))) return undefined
  return imageTree(directory, image.name, path)
}

/** A path with no link left in what there is of it. */
export async function realPlace(path: string): Promise<string> {
  return realpath(path).catch(async () =>
    path === dirname(path) ? path : join(await realPlace(dirname(path)), basename(path))
  )
}

/** The real directory of an image; throws unavailable (503) naming the field or the ini key when it has none. */
export async function treeOf(directory: string, image: OsimageDoc): Promise<string> {
  const tree = await treeIfAny(directory, image)
  if (tree !== undefined) return tree
  throw unavailable(
    `OS image ${image.name}: field "path" is not set, and there is no ${meantTree(directory, image)}`
  )
}

/** Throws unavailable (503) where something is mounted in an image's tree: it need not be inside `[image] directory`. */
export async function checkUnmounted(osimage: string, tree: string, done: string): Promise<void> {
  const mounted = (await mountsBelow(tree)).find(point => point !== tree)
  if (mounted !== undefined)
    throw unavailable(`OS image ${osimage}: ${tree} cannot be ${done}: something is mounted at ${mounted}`)
}

/** The name of the directory that svcd made for an image, and that goes with it (rules 3.12). */
export function ownTree(view: View, directory: string, image: OsimageDoc): string | undefined {
  const path = meantTree(directory, image)
  const name = path.slice(directory.length + 1)
  return path === join(directory, name) && view.get('tree', name) ? name : undefined
}

/** Whether an image means a directory right below `[image] directory`, or something in it, by a link too. */
export function isTreeUsed(view: View, directory: string, name: string): boolean {
  const tree = join(directory, name)
  const real = realIfAny(tree)
  const within = (path: string, tree: string) => path === tree || path.startsWith(`${tree}/`)
  return view.names('osimage').some(osimage => {
    const image = view.get('osimage', osimage)
    if (!image) return false
    const path = meantTree(directory, image)
    return within(path, tree) || within(realIfAny(path), real)
  })
}

function realIfAny(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}
