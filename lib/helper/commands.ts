import { lstat, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { copyTo } from '../disk/copy.js'
import { syncDirectory } from '../disk/directory.js'
import { openInside } from '../disk/inside.js'
import { removeTree } from '../disk/remove-tree.js'
import { builtinPacker } from '../image/packer/builtin-packer.js'
import { buildInitramfs, type Initramfs } from '../image/packer/initramfs.js'
import type { Packed } from '../image/packer/packer.js'
import { systemPacker } from '../image/packer/system-packer.js'
import { copyFromNode } from '../image/transfer/from-node.js'
import { Remote } from '../image/transfer/remote.js'
import { copyToNode } from '../image/transfer/to-node.js'
import { run } from '../program/program.js'
import { address, flag, nodeName, oneOf, optional, type Shape, text, texts, type Values } from './args.js'
import type { Course } from './course.js'
import { baseOf, checkHidden, checkPlain, checkTree, inFiles, ownerOf, type Places } from './places.js'

interface Command<S extends Shape, R> {
  readonly shape: S
  run(places: Places, args: Values<S>, course: Required<Course>): Promise<R>
}

const command = <S extends Shape, R>(shape: S, run: Command<S, R>['run']): Command<S, R> => ({ shape, run })

const SYSTEMCTL_MS = 90_000

/** What a grab and a push are told. */
const transfer = {
  node: nodeName,
  address,
  filesystems: texts,
  exclude: texts,
  own: texts,
  dryrun: flag
}

/**
 * All that is done as root, and nothing else. Paths are those of the ini (`Places`); a tree is checked to lie below
 * `[image] directory`, and other names are one component. No command runs what it is given.
 */
export const commands = {
  /** Builds the initramfs of a tree with the tree's own tool. */
  initramfs: command(
    { tree: text, kernelversion: text, dracutmodules: texts, kernelmodules: texts },
    async (places, args, course): Promise<Initramfs | undefined> =>
      buildInitramfs({ ...course, ...args, tree: await checkTree(places, args.tree) })
  ),

  /** Makes the archive of a tree, a hidden file of the files directory. */
  pack: command(
    {
      tree: text,
      excludes: texts,
      packer: oneOf('system', 'builtin'),
      compressor: oneOf('zstd', 'pigz', 'none'),
      output: text
    },
    async (places, { packer, compressor, excludes, ...args }, course): Promise<Packed> => {
      const tree = await checkTree(places, args.tree)
      const chosen = packer === 'system' ? systemPacker(compressor) : builtinPacker
      return inFiles(places, args.output, (output, owner) =>
        chosen.pack({ ...course, tree, excludes, output, owner })
      )
    }
  ),

  /** Fails where a tree has no such regular file. */
  readable: command({ tree: text, path: text }, async (places, { tree, path }): Promise<void> => {
    await (await openInside(await checkTree(places, tree), path)).close()
  }),

  /** Copies a file of a tree to a hidden file of the files directory. */
  copy: command(
    { tree: text, path: text, output: text },
    async (places, { tree, path, output }, { signal }): Promise<void> => {
      const file = await openInside(await checkTree(places, tree), path)
      await inFiles(places, output, (to, owner) => copyTo(file, to, signal, owner))
    }
  ),

  /** Copies a tree to a hidden directory beside its future place. */
  clone: command({ tree: text, parent: text, work: text }, async (places, args, course): Promise<void> => {
    const tree = await checkTree(places, args.tree)
    const work = join(await baseOf(places, args.parent), checkHidden(args.work))
    await run('cp', ['-a', '-x', '--reflink=auto', '-T', '--', tree, work], course)
  }),

  /** Takes a node's file systems into a hidden directory. */
  grab: command(
    { ...transfer, tree: optional(text), parent: text, work: text },
    async (places, { parent, ...args }, course) => {
      const tree = args.tree === undefined ? undefined : await checkTree(places, args.tree)
      const work = join(await baseOf(places, parent), checkHidden(args.work))
      return copyFromNode({ ...course, ...args, tree, work, remote: await remoteOf(places) })
    }
  ),

  /** Makes a node like a tree. */
  push: command({ ...transfer, tree: text }, async (places, args, course) => {
    const tree = await checkTree(places, args.tree)
    return copyToNode({ ...course, ...args, tree, remote: await remoteOf(places) })
  }),

  /** Makes a hidden directory's content durable. */
  sync: command({ parent: text, work: text }, async (places, { parent, work }, course): Promise<void> => {
    await run('sync', ['-f', '--', join(await baseOf(places, parent), checkHidden(work))], course)
  }),

  /** Gives a directory another name in the same place, durably. */
  rename: command(
    { parent: text, from: text, to: text },
    async (places, { parent, from, to }): Promise<void> => {
      const base = await baseOf(places, parent)
      const old = join(base, checkPlain(from))
      // A link in the place of a directory that was checked would lead other commands out.
      if (!(await lstat(old)).isDirectory()) throw new Error(`${old} is no directory`)
      await rename(old, join(base, checkPlain(to)))
      await syncDirectory(base)
    }
  ),

  /** Changes a server of the system that the ini names. */
  systemctl: command(
    { verb: oneOf('start', 'stop', 'restart', 'reload'), unit: text },
    async ({ units }, { verb, unit }, { signal, timeLimitMs }): Promise<string> => {
      if (!units.includes(unit)) throw new Error(`the ini names no server ${JSON.stringify(unit)}`)
      const limit = Math.min(timeLimitMs, SYSTEMCTL_MS)
      return (await run('systemctl', [verb, unit], { signal, timeLimitMs: limit })).stdout
    }
  ),

  /** Removes a hidden directory. */
  remove: command({ parent: text, name: text }, async (places, { parent, name }): Promise<void> => {
    await removeTree(join(await baseOf(places, parent), checkHidden(name)))
  })
}

export type Verb = Args<'systemctl'>['verb']
export type Name = keyof typeof commands
export type Args<N extends Name> = Values<(typeof commands)[N]['shape']>
export type Result<N extends Name> = Awaited<ReturnType<(typeof commands)[N]['run']>>

/** The ssh of a grab or a push runs as the owner of its key, who also gets the host keys: only rsync is root's. */
async function remoteOf(places: Places): Promise<Remote> {
  const { state, sshKey, sshPort, byRoot } = places
  if (byRoot) return new Remote({ state, sshKey, sshPort })
  return new Remote({ state, sshKey, sshPort, as: await ownerOf(places) })
}
