import { basename, join, normalize } from 'node:path'
import type { JsonObject } from '../base/json.js'
import type { Layout, RawState } from '../store/start.js'
import { isObjectName } from './names.js'

/**
 * The steps from the layouts of earlier releases to today's (rules 11.11). A release with a new layout
 * appends a step, and adds a state of the previous release to test/store/releases/. Steps work on plain JSON,
 * and use no code that later releases may change.
 */
export const migrations = (imageDirectory: string): Layout['steps'] => [
  state => {
    plainPaths(state, imageDirectory)
    treeOwners(state, imageDirectory)
  },
  // Changes are in a log, which earlier releases do not read: they would go on without the last ones.
  () => {}
]

/** Removes the final slash by which a rename marked a `path`, and adds the record of the directory. */
function plainPaths(state: RawState, directory: string): void {
  for (const image of images(state)) {
    const { name, path } = image
    const tree = basename(path)
    if (path !== `${join(directory, tree)}/` || !isObjectName(tree)) continue
    state.put('osimage', name, { ...image.json, path: join(directory, tree) })
    if (!state.get('tree', tree)) state.put('tree', tree, { name: tree, osimage: name })
  }
}

/** Adds the owner to records of directories; a record without such an image is left alone. */
function treeOwners(state: RawState, directory: string): void {
  const meant = (name: string, path: string) =>
    path === '' ? join(directory, name) : normalize(path).replace(/(?<=.)\/+$/, '')
  const owners = new Map(images(state).map(({ name, path }) => [meant(name, path), name]))
  for (const name of state.names('tree')) {
    const tree = state.get('tree', name)
    const osimage = owners.get(join(directory, name))
    if (tree && osimage !== undefined && tree.osimage === undefined)
      state.put('tree', name, { ...tree, osimage })
  }
}

/** Returns the images with their `path`; '' if not set. */
function images(state: RawState): { name: string; path: string; json: JsonObject }[] {
  return state.names('osimage').flatMap(name => {
    const json = state.get('osimage', name)
    return json ? [{ name, json, path: typeof json.path === 'string' ? json.path : '' }] : []
  })
}
