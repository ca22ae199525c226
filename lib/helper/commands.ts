import { lstat, mkdir, rename, rmdir, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { timeLimited } from '../base/concurrency.js'
import { copyTo, syncDirectory } from '../disk/file.js'
import {
  inDirectory,
  type OpenDirectory,
  openInside,
  removeTree,
  withRemedy
} from '../disk/open-directory.js'
import { run } from '../program/program.js'
import { readStored, storageIn } from './containers-storage.js'
import {
  checkComponent,
  checkHidden,
  checkUnmounted,
  createInFiles,
  type HelperSettings,
  inImageDirectory,
  inTree
} from './directories.js'
import { builtinPacker } from './packer/builtin-packer.js'
import { buildInitramfs } from './packer/initramfs.js'
import { type CachedInitramfs, initramfsOf } from './packer/initramfs-cache.js'
import type { PackResult } from './packer/packer.js'
import { systemPacker } from './packer/system-packer.js'
import { runRehearsal } from './rehearse.js'
import { withRemote } from './ssh.js'
import { copyFromNode, copyToNode } from './transfer/node-transfer.js'
import { LAYOUT, unpackLayout } from './unpack.js'

/** Reads one argument of a command. Throws Error for another type. */
type Read<T> = (value: unknown) => T

const LONGEST_TEXT = 4096
const MOST_TEXTS = 100_000

const textThat =
  (rule: string, is: (text: string) => boolean): Read<string> =>
  value => {
    if (typeof value !== 'string' || !is(value)) throw new Error(`must be ${rule}`)
    return value
  }

const text = textThat('a text', value => value.length <= LONGEST_TEXT && !value.includes('\0'))

/** A text of any length, bounded by the longest message. */
const longText = textThat('a text', () => true)

/** A node's name, which becomes a word of ssh's command line. */
const nodeName = textThat('the name of a node', name => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name))

const address = textThat('an IP address', value => isIP(value) !== 0)

const texts: Read<readonly string[]> = value => {
  if (!Array.isArray(value) || value.length > MOST_TEXTS) throw new Error('must be a list of texts')
  return value.map(text)
}

const flag: Read<boolean> = value => {
  if (typeof value !== 'boolean') throw new Error('must be true or false')
  return value
}

const natural: Read<number> = value => {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1)
    throw new Error('must be a whole number above 0')
  return value
}

const oneOf =
  <W extends string>(...words: readonly W[]): Read<W> =>
  value => {
    const word = words.find(word => word === value)
    if (word === undefined) throw new Error(`must be ${words.join(' or ')}`)
    return word
  }

const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  value =>
    value === undefined || value === null ? undefined : read(value)

export type Shape = Readonly<Record<string, Read<unknown>>>
export type Values<S extends Shape> = { readonly [K in keyof S]: ReturnType<S[K]> }

/** Reads the arguments of a command. Throws Error naming one that is wrong, missing or unknown. */
export function readArgs<S extends Shape>(shape: S, given: unknown): Values<S> {
  if (typeof given !== 'object' || given === null) throw new Error('the arguments must be an object')
  const unknown = Object.keys(given).find(name => !Object.hasOwn(shape, name))
  if (unknown !== undefined) throw new Error(`there is no argument ${JSON.stringify(unknown)}`)
  const read = Object.entries(shape).map(([name, read]) => {
    try {
      return [name, read((given as Record<string, unknown>)[name])]
    } catch (error) {
      throw new Error(`argument ${name} ${(error as Error).message}`)
    }
  })
  return Object.fromEntries(read) as Values<S>
}

export interface Command<S extends Shape, R> {
  readonly shape: S
  run(places: HelperSettings, args: Values<S>, course: Required<TaskHooks>): Promise<R>
}

const command = <S extends Shape, R>(shape: S, run: Command<S, R>['run']): Command<S, R> => ({ shape, run })

const SYSTEMCTL_MS = 90_000

/** Arguments of grabs and pushes. */
const transfer = { node: nodeName, address, filesystems: texts, exclude: texts, own: texts, dryrun: flag }

/**
 * Everything that svcd does as root. Paths come from the ini; trees lie below `[image] directory`, other
 * names are single components, and no command runs its arguments. Names in a tree may change at any time:
 * this process works through the `at` of an open directory, and programs see it apart, without links
 * (`isolatePaths`; docs/security.md).
 */
export const commands = {
  /** Builds the initramfs with the tree's own tool, unless that of the last build (`record`) still fits. */
  initramfs: command(
    {
      tree: text,
      kernelversion: text,
      dracutmodules: texts,
      kernelmodules: texts,
      record: optional(longText)
    },
    async (places, { record, ...args }, course): Promise<CachedInitramfs | undefined> =>
      inTree(places, args.tree, ({ path, at }) => {
        const { byRoot } = places
        const build = () => buildInitramfs({ ...course, ...args, tree: at(), byRoot })
        return initramfsOf({ ...course, ...args, path, tree: at(), record, build }).catch(error => {
          throw withRemedy(error, join(path, 'boot'))
        })
      })
  ),

  /** Packs a tree into a hidden file of the files directory. */
  pack: command(
    {
      tree: text,
      excludes: texts,
      packer: oneOf('system', 'builtin'),
      compressor: oneOf('zstd', 'pigz', 'none'),
      output: text
    },
    async (places, { packer, compressor, excludes, ...args }, course): Promise<PackResult> => {
      const chosen = packer === 'system' ? systemPacker(compressor) : builtinPacker
      return inTree(places, args.tree, async tree => {
        const { through, paths } = await isolatePaths(places, [tree])
        const [path] = through.length === 0 ? [] : paths
        return createInFiles(places, args.output, (output, owner) =>
          chosen.pack({ ...course, tree: tree.at(), path, through, excludes, output, owner })
        )
      })
    }
  ),

  /** Throws Error if a tree has no such regular file. */
  readable: command({ tree: text, path: text }, async (places, { tree, path }): Promise<void> => {
    await inTree(places, tree, async ({ at }) => (await openInside(at(), path, tree)).close())
  }),

  /** Copies a file of a tree to a hidden file of the files directory. */
  copy: command(
    { tree: text, path: text, output: text },
    async (places, { tree, path, output }, course): Promise<void> => {
      const { signal, release } = timeLimited(course)
      const open = () => inTree(places, tree, ({ at }) => openInside(at(), path, tree))
      const copy = createInFiles(places, output, async (to, owner) => copyTo(await open(), to, signal, owner))
      await copy.finally(release)
    }
  ),

  /** Copies a tree to a hidden directory beside its final path. */
  clone: command({ tree: text, parent: text, work: text }, async (places, args, course): Promise<void> => {
    await inTree(places, args.tree, async tree => {
      await checkUnmounted(tree)
      await checkOwners(args.tree, course)
      await withNewDirectory(places, args, async into => {
        const { through, paths } = await isolatePaths(places, [tree, into])
        const [from, to = ''] = paths
        const words = ['-a', '-x', '--reflink=auto', '-T', '--', `${from}/.`, to]
        await run('cp', words, { ...course, wrapper: through })
      })
    })
  }),

  /** Unpacks the OCI layout in a hidden directory of the files directory into a hidden directory. */
  unpack: command(
    { layout: text, parent: text, work: text, bytes: natural, layers: natural },
    async (places, { layout, parent, work, ...bounds }, course): Promise<void> => {
      checkOwnersOf('a container image')
      await inDirectory(places.files, `${checkHidden(layout)}/${LAYOUT}`, from =>
        withNewDirectory(places, { parent, work }, async into => {
          const { through, paths } = await isolatePaths(places, [from, into])
          const [seen = '', target = ''] = paths
          await unpackLayout({ ...course, ...bounds, through, opened: into, layout: seen, into: target })
        })
      )
    }
  ),

  /** Returns the manifest of an image in podman's storage, or copies it into a hidden directory like that. */
  stored: command(
    { layout: text, image: text, copy: flag },
    async (places, { layout, ...args }, course): Promise<string> => {
      const storage = await storageIn(places.storage)
      return inDirectory(places.files, checkHidden(layout), async into =>
        readStored(storage, { ...course, ...args, ...(await isolatePaths(places, [into], storage.path)) })
      )
    }
  ),

  /** Copies a node's file systems into a hidden directory. */
  grab: command(
    { ...transfer, tree: optional(text), parent: text, work: text },
    async (places, { parent, ...args }, course) => {
      checkOwnersOf(`node ${args.node}`)
      const grab = async (tree?: OpenDirectory, into?: OpenDirectory) => {
        const given = [...(tree ? [tree] : []), ...(into ? [into] : [])]
        const { through, paths, nothing } = await isolatePaths(places, given)
        const seen = { tree: tree && paths[0], work: (into && paths.at(-1)) ?? nothing }
        const work = into?.path ?? nothing
        const request = { ...course, ...args, work, at: into?.at(), seen, through }
        return withRemote(places, args.node, remote => copyFromNode({ ...request, remote }))
      }
      const filled = (tree?: OpenDirectory) =>
        args.dryrun
          ? grab(tree)
          : withNewDirectory(places, { parent, work: args.work }, into => grab(tree, into))
      if (args.tree === undefined) return filled()
      return inTree(places, args.tree, async tree => {
        await checkUnmounted(tree)
        return filled(tree)
      })
    }
  ),

  /** Makes a node's file systems equal to a tree. */
  push: command({ ...transfer, tree: text }, async (places, args, course) =>
    inTree(places, args.tree, async held => {
      await checkUnmounted(held)
      const { through, paths } = await isolatePaths(places, [held])
      const request = { ...course, ...args, at: held.at(), seen: paths[0], through }
      return withRemote(places, args.node, remote => copyToNode({ ...request, remote }))
    })
  ),

  /** Syncs a hidden directory to the disk. */
  sync: command({ parent: text, work: text }, async (places, { parent, work }, course): Promise<void> => {
    await inImageDirectory(places, parent, base =>
      inDirectory(base.at(), checkHidden(work), async ({ at }) => {
        await run('sync', ['-f', '--', at()], course)
      })
    )
  }),

  /** Renames a directory in its parent, durably. */
  rename: command(
    { parent: text, from: text, to: text },
    async (places, { parent, from, to }): Promise<void> => {
      await inImageDirectory(places, parent, async ({ path, at }) => {
        const [old, name] = [at(checkComponent(from)), join(path, from)]
        if (!(await lstat(old)).isDirectory()) throw new Error(`${name} is no directory`)
        await rename(old, at(checkComponent(to))).catch(error => {
          throw withRemedy(new Error(`${name} keeps its name: ${error.code}`, { cause: error }), name)
        })
        await syncDirectory(at())
      })
    }
  ),

  /** Controls a systemd unit that the ini names. */
  systemctl: command(
    { verb: oneOf('start', 'stop', 'restart', 'reload'), unit: text },
    async ({ units }, { verb, unit }, { signal, timeLimitMs }): Promise<string> => {
      if (!units.includes(unit)) throw new Error(`the ini names no server ${JSON.stringify(unit)}`)
      const limit = Math.min(timeLimitMs, SYSTEMCTL_MS)
      return (await run('systemctl', [verb, unit], { signal, timeLimitMs: limit })).stdout
    }
  ),

  /** Runs the rehearsal in the state directory, in a network namespace that leads nowhere. */
  rehearse: command({ node: address, controller: address }, runRehearsal),

  /** Removes a hidden directory. */
  remove: command({ parent: text, name: text }, async (places, { parent, name }): Promise<void> => {
    await inImageDirectory(places, parent, ({ path, at }) =>
      removeTree(at(checkHidden(name)), join(path, name))
    )
  })
}

export type Verb = Args<'systemctl'>['verb']
export type Name = keyof typeof commands
export type Args<N extends Name> = Values<(typeof commands)[N]['shape']>
export type Result<N extends Name> = Awaited<ReturnType<(typeof commands)[N]['run']>>

/** Creates a new hidden directory and runs `fill` while it is open. */
const withNewDirectory = <T>(
  places: HelperSettings,
  { parent, work }: { readonly parent: string; readonly work: string },
  fill: (into: OpenDirectory) => Promise<T>
): Promise<T> =>
  inImageDirectory(places, parent, async ({ path, at }) => {
    await mkdir(at(checkHidden(work)), 0o700)
    try {
      return await inDirectory(at(), work, into => fill({ ...into, path: join(path, work) }))
    } catch (error) {
      // The caller removes a directory that is not empty.
      await rmdir(at(work)).catch(() => {})
      throw error
    }
  })

const isRoot = () => process.getuid?.() === 0

/** Throws Error if a copy without root would lose owners or groups of files. cp does not report that. */
async function checkOwners(tree: string, course: Required<TaskHooks>): Promise<void> {
  if (isRoot()) return
  const groups = new Set([process.getgid?.(), ...(process.getgroups?.() ?? [])])
  const ours = [...groups].flatMap(group => ['!', '-gid', `${group}`])
  const others = ['(', '!', '-uid', `${process.getuid?.()}`, '-o', '(', ...ours, ')', ')']
  const { signal, timeLimitMs } = course
  const words = [tree, '-xdev', ...others, '-print', '-quit']
  const { stdout } = await run('find', words, { signal, timeLimitMs })
  if (stdout !== '')
    throw new Error(`${stdout.trimEnd()} belongs to another user or group: to keep that is not permitted`)
}

/** Throws Error if this process is not root: a copy would lose the owners of files. */
function checkOwnersOf(what: string): void {
  if (!isRoot()) throw new Error(`the files of ${what} belong to its users: to keep that is not permitted`)
}

/** The directory of the checkout or of the installed service, above dist/helper/ or lib/helper/. */
const libexec = fileURLToPath(new URL('../../libexec', import.meta.url))
const PROBE_MS = 30_000

/**
 * Shows open directories to a program in a mount namespace, without mounts in them and without following
 * links: a name may have become one since it was checked. `through` is the command prefix, `nothing` an empty
 * path, and `paths` are in the order of the arguments. Where this machine cannot do that, root's own orders
 * get plain paths, and others an Error. Without root, paths are plain.
 */
async function isolatePaths(places: HelperSettings, directories: readonly OpenDirectory[], only?: string) {
  const plain = { through: [], paths: directories.map(({ path }) => path), nothing: `${libexec}/nothing` }
  if (!isRoot()) return plain
  const alone = only === undefined ? [] : ['--pid', '--fork', '--kill-child']
  const words = [...alone, '--mount', '--propagation', 'private', 'sh', `${libexec}/without-links.sh`]
  if (only !== undefined) words.push('--only', only)
  for (const { path, at } of directories) {
    const { dev, ino } = await stat(at(), { bigint: true })
    words.push(path, `${dev}:${ino}`)
  }
  words.push('--')
  try {
    await run('unshare', [...words, 'true'], { timeLimitMs: PROBE_MS })
  } catch (error) {
    if (places.byRoot && !/was replaced/.test((error as Error).message)) return plain
    throw error
  }
  const here = only === undefined ? libexec : ''
  const paths = directories.map((_, i) => `${here}/${i + 1}`)
  return { through: ['unshare', ...words], paths, nothing: `${here}/nothing` }
}

/** Runs commands that need root. It knows no objects. */
export interface RootHelper {
  /** Runs one command. Throws ServiceError (503 if there is no helper), or Error with the reason. */
  call<N extends Name>(command: N, args: Args<N>, course?: TaskHooks): Promise<Result<N>>
  close(): Promise<void>
}

/** How a task reports and is stopped. A program's output is read on when the promise of a report resolves. */
export interface TaskHooks {
  readonly signal?: AbortSignal
  readonly timeLimitMs?: number
  /** For the record of the request. */
  line?(text: string): unknown
  /** 0..1. */
  progress?(fraction: number): void
  /** One change of a grab or a push. */
  change?(text: string): unknown
}
