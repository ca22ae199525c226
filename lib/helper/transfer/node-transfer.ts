import { mkdir, open, readdir, realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isMissing, withOpen } from '../../disk/file.js'
import { DIRECTORY, inDirectory } from '../../disk/open-directory.js'
import { run } from '../../program/program.js'
import { nodeMounts } from './reach.js'
import { type CopyRequest, transfer } from './rsync.js'
import { checkSelection, chooseFilesystems, grabRules, pushRules } from './selection.js'

export interface FromNodeRequest extends CopyRequest {
  /** The image's directory, which is only read; undefined where it has none yet. */
  readonly tree: string | undefined
  /** The directory to fill, absolute: not there yet or empty. A dry run does not make it. */
  readonly work: string
  /** `work` by a directory that is held open (disk/open-directory.ts), for this process; default: `work`. */
  readonly at?: string | undefined
  /** Both as cp and rsync find them; default: as above. */
  readonly seen?: { readonly tree: string | undefined; readonly work: string }
}

/**
 * Copies a node's file systems into `work`, which starts as a copy of `tree`: excluded paths stay as in the
 * image (rules 9.7). A dry run only reports. Throws Error with the node's name; `work` may be partial then.
 * The caller makes the result durable.
 */
export async function copyFromNode(request: FromNodeRequest): Promise<{ readonly changes: number }> {
  const { remote, node, tree, work, at = work, seen = { tree, work }, dryrun, own = [] } = request
  const { signal, timeLimitMs, line, through } = request
  const { filesystems, exclude } = checkSelection(request.filesystems, request.exclude)
  const chosen = chooseFilesystems(node, filesystems, await nodeMounts(remote, request, signal))
  for (const path of chosen.partsOfTaken) line(`${path} is no file system of its own on node ${node}`)
  for (const path of chosen.left) line(`${path} of node ${node} is another file system: left out`)
  const destination = dryrun ? (seen.tree ?? seen.work) : seen.work
  if (!dryrun) {
    await mkdir(at, { recursive: true, mode: 0o700 })
    if ((await readdir(at)).length > 0) throw new Error(`${work} is not empty`)
    if (seen.tree !== undefined) {
      line(`copying ${tree}`)
      const words = ['-a', '-x', '--reflink=auto', '--', `${seen.tree}/.`, `${destination}/`]
      await run('cp', words, { signal, timeLimitMs, wrapper: through })
    }
  }
  const result = await transfer({
    ...request,
    sources: chosen.taken.map(path => (path === '/' ? '/./' : `/.${path}/`)),
    destination: `${destination}/`,
    from: 'node',
    rules: grabRules(exclude, own, chosen)
  })
  if (!dryrun) await emptyMachineId(at)
  return result
}

/** Adds an empty machine id: without the file, systemd would apply its presets at each boot. */
async function emptyMachineId(work: string): Promise<void> {
  await inDirectory(work, 'etc', ({ at }) =>
    withOpen(open(at(), DIRECTORY), async directory => {
      const times = await directory.stat()
      const file = await open(at('machine-id'), 'wx', 0o444)
      await file.close()
      // /etc gets the node's time again, so that another grab finds nothing to do.
      await directory.utimes(times.atime, times.mtime)
    })
  ).catch((error: NodeJS.ErrnoException) => {
    // There is a machine id, or no directory for it.
    if (error.code !== 'EEXIST' && !isMissing(error)) throw error
  })
}

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
