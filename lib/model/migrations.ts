import { basename, join, normalize } from 'node:path'
import type { JsonObject } from '../json.js'
import type { Layout, RawState } from '../store/start.js'
import { isObjectName } from './names.js'

/**
 * The steps that bring the state of an earlier release to today's layout (rules 11.11). A release that stores something in
 * another way adds a step at the end, and a state of the release before it to test/store/releases/. A step must not use
 * what later releases may change: it works on plain JSON.
 */
export const migrations = (imageDirectory: string): Layout['steps'] => [
  state => {
    plainPaths(state, imageDirectory)
    treeOwners(state, imageDirectory)
  }
]

/** A rename marked the `path` that it gave by a slash at the end, and stored no record of the directory. */
function plainPaths(state: RawState, directory: string): void {
  for (const image of images(state)) {
    const { name, path } = image
    const tree = basename(path)
    if (path !== `${join(directory, tree)}/` || !isObjectName(tree)) continue
    state.put('osimage', name, { ...image.json, path: join(directory, tree) })
    if (!state.get('tree', tree)) state.put('tree', tree, { name: tree, osimage: name })
  }
}

/**
 * The records of directories did not say whose they are: each belongs to the image that means the directory. A record that
 * no image means stays as it is: nobody knows whose the directory is, so it is never removed.
 */
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

/** The images, with their `path`; '' where they have none. */
function images(state: RawState): { name: string; path: string; json: JsonObject }[] {
  return state.names('osimage').flatMap(name => {
    const json = state.get('osimage', name)
    return json ? [{ name, json, path: typeof json.path === 'string' ? json.path : '' }] : []
  })
}
