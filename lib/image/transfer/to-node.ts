import { realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { nodeMounts } from './reach.js'
import type { Remote, Target } from './remote.js'
import { type Course, transfer } from './rsync.js'
import { checkSelection, chooseFilesystems, literals, pushMountRules, pushRules } from './selection.js'

export interface ToNodeRequest extends Course, Target {
  readonly remote: Remote
  /** The image's directory. */
  readonly tree: string
  /** `grab_filesystems` and `grab_exclude` of the image. */
  readonly filesystems: readonly string[]
  readonly exclude: readonly string[]
  /** Absolute paths of the node's own files, such as secrets: left out both ways. */
  readonly own?: readonly string[]
}

/**
 * Makes the file systems of a running node those of an image, except for what identifies the node and what is excluded.
 * Deletes what the image does not hold (docs/grab-and-push.md). Throws Error in one sentence with the node's name: the
 * node may be between the two then, and another push completes it.
 */
export async function copyToNode(request: ToNodeRequest): Promise<{ readonly changes: number }> {
  const { remote, node, signal, line, own = [] } = request
  const { filesystems, exclude } = checkSelection(request.filesystems, request.exclude)
  const tree = await realpath(request.tree)
  const chosen = chooseFilesystems(node, filesystems, await nodeMounts(remote, request, signal))
  for (const path of chosen.taken) await checkSource(tree, path)
  for (const path of chosen.left) line(`${path} of node ${node} is another file system: left alone`)
  return transfer({
    ...request,
    sources: chosen.taken.map(path => (path === '/' ? `${tree}/./` : `${tree}/.${path}/`)),
    destination: '/',
    from: 'controller',
    rules: [...pushMountRules(chosen), ...pushRules([...literals(own), ...exclude], chosen.taken)],
    // Programs go on finding what they load until what replaces it is there. The directories above a file system
    // that is pushed alone are not its own.
    options: ['--delete-delay', '--no-implied-dirs']
  })
}

/** A push deletes what its source lacks, so the source has to be what it is taken for. */
async function checkSource(tree: string, path: string): Promise<void> {
  const source = path === '/' ? tree : join(tree, path)
  if ((await realpath(source).catch(() => undefined)) !== source || !(await stat(source)).isDirectory())
    throw new Error(`grab_filesystems: ${JSON.stringify(path)} is no directory of the image ${tree}`)
  if (path !== '/') return
  for (const name of ['etc', 'usr'])
    if (!(await stat(join(tree, name)).catch(() => undefined))?.isDirectory())
      throw new Error(`${tree} holds no system that could be pushed: it has no /${name}`)
  const { uid, mode } = await stat(tree)
  if (uid !== 0 || (mode & 0o555) !== 0o555)
    throw new Error(
      `${tree} belongs to user ${uid} with mode ${(mode & 0o7777).toString(8)}, which would become those of the ` +
        'root directory of the node: it has to be root with mode 755'
    )
}
