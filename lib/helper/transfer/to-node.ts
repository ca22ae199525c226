import { realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { nodeMounts } from './reach.js'
import { type CopyRequest, transfer } from './rsync.js'
import { checkSelection, chooseFilesystems, pushRules } from './selection.js'

export interface ToNodeRequest extends CopyRequest {
  readonly tree: string
  /** `tree` held open (disk/open-directory.ts), for this process; default: `tree`. */
  readonly at?: string
  /** `tree` as rsync finds it; default: `tree` with no link left. */
  readonly seen?: string | undefined
}

/**
 * Makes the file systems of a running node equal to those of an image, but for files that identify the node
 * and excluded paths. Deletes what the image does not hold (docs/grab-and-push.md). Throws Error in one
 * sentence with the node's name; another push completes a partial one.
 */
export async function copyToNode(request: ToNodeRequest): Promise<{ readonly changes: number }> {
  const { remote, node, signal, line, own = [] } = request
  const { filesystems, exclude } = checkSelection(request.filesystems, request.exclude)
  const { at = request.tree } = request
  const tree = await realpath(at)
  const { seen = tree } = request
  const chosen = chooseFilesystems(node, filesystems, await nodeMounts(remote, request, signal))
  for (const path of chosen.taken) await checkSource(at, tree, path)
  for (const path of chosen.left) line(`${path} of node ${node} is another file system: left alone`)
  return transfer({
    ...request,
    sources: chosen.taken.map(path => (path === '/' ? `${seen}/./` : `${seen}/.${path}/`)),
    destination: '/',
    from: 'controller',
    rules: pushRules(exclude, own, chosen)
  })
}

/** Throws Error unless the source of a push is what it should be: a push deletes what its source lacks. */
async function checkSource(at: string, tree: string, path: string): Promise<void> {
  const source = join(at, path)
  const real = await realpath(source).catch(() => undefined)
  if (real !== (path === '/' ? tree : join(tree, path)) || !(await stat(source)).isDirectory())
    throw new Error(`grab_filesystems: ${JSON.stringify(path)} is no directory of the image ${tree}`)
  if (path !== '/') return
  for (const name of ['etc', 'usr'])
    if (!(await stat(join(at, name)).catch(() => undefined))?.isDirectory())
      throw new Error(`${tree} holds no system that could be pushed: it has no /${name}`)
  const { uid, mode } = await stat(at)
  if (uid !== 0 || (mode & 0o555) !== 0o555)
    throw new Error(
      `${tree} belongs to user ${uid} with mode ${(mode & 0o7777).toString(8)}, ` +
        'which would become those of the root directory of the node: it has to be root with mode 755'
    )
}
