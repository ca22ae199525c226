import type { FileHandle } from 'node:fs/promises'
import { shown } from '../../base/log.js'
import { fillNew } from '../../disk/file.js'
import { ProgramError, run } from '../../program/program.js'
import { type Contents, contentsOf, literalPattern, tarOptions } from './contents.js'
import { hashFile, measureTree } from './in-worker.js'
import {
  Omissions,
  OTHER_FILESYSTEM,
  type Packer,
  type PackRequest,
  type PackResult,
  SOCKETS
} from './packer.js'

export type Compressor = 'zstd' | 'pigz' | 'none'

/** GNU tar runs the command by `sh -c`: it must hold nothing from outside. Its failure is that of tar. */
const COMPRESSORS: Readonly<Record<Compressor, { suffix: string; command?: string }>> = {
  zstd: { suffix: '.tar.zst', command: 'zstd -T0 -q' },
  pigz: { suffix: '.tar.gz', command: 'pigz -n' },
  none: { suffix: '.tar' }
}

const RECORD_BYTES = 10_240
const RECORDS_PER_CHECKPOINT = 256
/** A small image is packed by then, and is not measured. */
const PROGRESS_AFTER_MS = 1000

/** The packer that runs GNU tar and a compressor. Both must be installed, which choosePacker checks. */
export function systemPacker(compressor: Compressor): Packer {
  const { suffix, command } = COMPRESSORS[compressor]
  return {
    name: 'system',
    suffix,
    async pack(request: PackRequest): Promise<PackResult> {
      const contents = await contentsOf(request.tree, request.excludes)
      const where = [`--directory=${request.path ?? request.tree}`, '.']
      const words = [...options(command), ...excluding(contents), ...where]
      const omitted = new Omissions()
      // tar itself names the directories of other devices, where it sees them.
      for (const { path, isDirectory, isBound } of contents.mounts)
        if (request.path !== undefined || isBound || !isDirectory)
          omitted.add(OTHER_FILESYSTEM, shown(Buffer.from(path)))
      return fillNew(
        request.output,
        async file => {
          const progress = progressOf(contents, request.progress)
          await tar(words, file, request, omitted, progress).finally(() => progress.end())
          // Hashed by the descriptor: the bytes that were written, whoever owns the directory.
          const written = `/proc/self/fd/${file.fd}`
          const [hashed] = await Promise.all([hashFile(written, request.signal), file.sync()])
          return { ...hashed, omitted: omitted.sentences() }
        },
        request.owner
      )
    }
  }
}

/**
 * ACLs are recorded twice: tar's record has names of users, the attribute their numbers. Default names of
 * extended headers would hold tar's process id. Packing changes access times.
 */
const options = (compressor: string | undefined) => [
  ...`--create --file=- --record-size=${RECORD_BYTES} --format=posix`.split(' '),
  '--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime',
  ...'--sort=name --numeric-owner --acls --selinux --xattrs --xattrs-include=*'.split(' '),
  ...'--sparse --sparse-version=0.0 --one-file-system'.split(' '),
  // Otherwise tar does not say which directories lie on another file system.
  '--verbose',
  '--index-file=/dev/null',
  `--checkpoint=${RECORDS_PER_CHECKPOINT}`,
  '--checkpoint-action=echo=#%u',
  ...(compressor === undefined ? [] : [`--use-compress-program=${compressor}`])
]

/** A mount point stays as an empty directory. */
const excluding = ({ excludes, mounts }: Contents) =>
  tarOptions([
    ...excludes,
    ...mounts.map(({ path, isDirectory }) => `${literalPattern(path)}${isDirectory ? '/*' : ''}`)
  ])

async function tar(
  words: readonly string[],
  file: FileHandle,
  { signal, timeLimitMs, line, through }: PackRequest,
  omitted: Omissions,
  progress: ReturnType<typeof progressOf>
): Promise<void> {
  const said = new TarMessages(omitted, records => progress.at(records * RECORD_BYTES), line)
  const onErrorLine = (text: string) => said.add(text)
  try {
    await run('tar', words, { cwd: '/', output: file.fd, signal, timeLimitMs, wrapper: through, onErrorLine })
  } catch (error) {
    const { reason } = said
    if (!(error instanceof ProgramError) || error.kind !== 'failed' || reason === undefined) throw error
    const what = error.status === undefined ? 'was killed' : `failed with status ${error.status}`
    throw new ProgramError('tar', 'failed', what, error.status, reason)
  }
}

/** Reports how much of a tree tar has read, as a fraction of its size, which is measured meanwhile. */
function progressOf(contents: Contents, tell: (fraction: number) => void) {
  const ended = new AbortController()
  let total = 0
  const timer = setTimeout(async () => {
    // tar itself says so where the tree cannot be read.
    total = await measureTree(contents, ended.signal).catch(() => 0)
  }, PROGRESS_AFTER_MS)
  return {
    at(bytes: number): void {
      if (total > 0) tell(Math.min(bytes / total, 0.99))
    },
    end(): void {
      clearTimeout(timer)
      ended.abort()
    }
  }
}

/** Sorts lines of GNU tar (LC_ALL=C) and its compressor: checkpoints (#<records>), omissions, the rest. */
class TarMessages {
  #ofTar: string | undefined
  #ofCompressor: string | undefined
  #isCompressorsFault = false

  constructor(
    readonly omitted: Omissions,
    readonly checkpoint: (records: number) => void,
    readonly line: (text: string) => unknown
  ) {}

  /** Takes a line; returns the result of `line`. */
  add(text: string): unknown {
    // tar calls itself by the path that it was started with.
    const said = /^(?:[^:]*\/)?tar: (.*)$/.exec(text)?.[1]
    if (said === undefined) {
      this.#ofCompressor ??= text
      return this.line(text)
    }
    const records = /^#(\d+)$/.exec(said)?.[1]
    const left = leftOut(said)
    if (records !== undefined) this.checkpoint(Number(records))
    else if (left !== undefined) this.omitted.add(...left)
    else return this.#say(said)
  }

  #say(said: string): unknown {
    if (/^Child (returned status|died with signal) /.test(said)) this.#isCompressorsFault = true
    if (!said.includes(': Warning: ')) this.#ofTar ??= explained(said)
    return this.line(`tar: ${said}`)
  }

  /** Why tar failed, if it did: its first message, as the last one only says that it failed. */
  get reason(): string | undefined {
    const words = [this.#ofTar, this.#ofCompressor]
    return (this.#isCompressorsFault ? words.reverse() : words).find(text => text !== undefined)
  }
}

/** Without a compressor that says it, a short write is the only sign of a full disk. */
const explained = (said: string) =>
  /^-: Wrote only \d+ of \d+ bytes$/.test(said) ? `${said}: no space left on device` : said

function leftOut(said: string): [kind: string, name: string] | undefined {
  const socket = /^(.+): socket ignored$/.exec(said)?.[1]
  if (socket !== undefined) return [SOCKETS, socket]
  const directory = /^(.+?)\/?: file is on a different filesystem; not dumped$/.exec(said)?.[1]
  if (directory !== undefined) return [OTHER_FILESYSTEM, directory]
  const support = /^(.+) support is not available$/.exec(said)?.[1]
  return support === undefined ? undefined : ['what this tar was built without is not carried', support]
}
