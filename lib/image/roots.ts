import { open, rm, stat, truncate } from 'node:fs/promises'
import { shown } from '../base/log.js'
import { withOpen } from '../disk/file.js'
import { hasAnyInside, textInside } from '../disk/open-directory.js'
import { hashFile, plainTar } from '../helper/packer/in-worker.js'
import type { JobContext } from '../jobs/jobs.js'
import type { PackRoot } from '../model/types/pack-roots.js'
import { type Limits, locate, run } from '../program/program.js'
import { unusable } from './context.js'

type Format = PackRoot['format']

/** The programs that make a root of a plain tar at standard input. */
const MAKERS = {
  squashfs: {
    program: 'mksquashfs',
    words: (output: string) =>
      // The same tree gives the same bytes. Unlike zstd's slowest level, this one is as fast as a disk.
      ['-', output, '-tar', '-noappend', '-no-progress', '-quiet', '-mkfs-time', '0'].concat([
        // mksquashfs 4.5 takes no attributes of the root itself from a tar; the node's overlay has its own.
        ...['-noI', '-root-mode', '755', '-root-uid', '0', '-root-gid', '0'],
        ...['-comp', 'zstd', '-Xcompression-level', '9', '-mem', '512M']
      ]),
    asked: '-version',
    knows: /^mksquashfs version (?:4\.[5-9]|4\.\d\d|[5-9])/,
    from: 'squashfs-tools',
    least: '4.5'
  },
  erofs: {
    program: 'mkfs.erofs',
    words: (output: string) => [
      ...['--quiet', '--tar=f', '-zlz4hc', '-T0', '--mkfs-time'],
      ...['-U00000000-0000-0000-0000-000000000001', output]
    ],
    asked: '--help',
    // 1.7 has --tar, and changes the times of all files.
    knows: /--mkfs-time[\s\S]*--tar=/,
    from: 'erofs-utils',
    least: '1.8'
  }
} satisfies Record<Format, object>
const DECOMPRESSORS = { '.tar.zst': ['zstd', '-dcq'], '.tar.gz': ['gzip', '-dc'], '.tar': ['cat'] } as const
/** The size of blocks of dm-verity and of both formats. */
const BLOCK = 4096
/** Bytes of a list of modules that are read; that of Debian has 0.6 MB. */
const MOST_MODULES = 4 * 1024 * 1024
/** Sentences of a program that are told. */
const MOST_SAID = 20

/** Throws 503 with all that the formats lack: programs here and in the image, drivers of its kernel. */
export async function checkRoots(
  image: string,
  tree: string,
  formats: Iterable<Format>,
  version: string | undefined
): Promise<void> {
  const lacking: string[] = []
  for (const format of formats) {
    const { program, asked, knows, from, least } = MAKERS[format]
    if ((await locate(program)) === undefined)
      lacking.push(`this controller has no ${program}: apt-get install ${from} (${least} or later)`)
    else {
      const { stdout, stderr } = await run(program, [asked], { timeLimitMs: 30_000, ok: [0, 1] })
      if (!knows.test(stdout) && !knows.test(stderr))
        lacking.push(
          `${from} of this controller is older than ${least}: install a newer one, or take another ` +
            'root_format'
        )
    }
    if (version !== undefined && !(await hasDriver(tree, version, format)))
      lacking.push(`kernel ${version} of the image has no driver for ${format}: take another root_format`)
    if (version !== undefined && !(await hasDriver(tree, version, 'dm-verity')))
      lacking.push(`kernel ${version} of the image has no dm-verity: install another kernel in it`)
  }
  if (lacking.length === 0 && [...formats].length === 0) return
  if ((await locate('veritysetup')) === undefined)
    lacking.push('this controller has no veritysetup: apt-get install cryptsetup-bin')
  if (!(await hasAnyInside(tree, ['usr/sbin/veritysetup', 'sbin/veritysetup'])))
    lacking.push(
      `the image has no veritysetup, for its initramfs: chroot ${tree} apt-get install cryptsetup-bin ` +
        '(or dnf install veritysetup)'
    )
  if (lacking.length > 0) throw unusable(image, `root_format: ${[...new Set(lacking)].join('; ')}`)
}

/** Whether a kernel has a driver, as a module or built in. An image whose lists cannot be read has it. */
async function hasDriver(tree: string, version: string, driver: string): Promise<boolean> {
  const lists = ['modules.dep', 'modules.builtin'].map(list =>
    textInside(tree, `lib/modules/${version}/${list}`, MOST_MODULES)
  )
  const texts = (await Promise.all(lists)).filter(text => text !== undefined)
  return texts.length === 0 || texts.some(text => text.includes(`/${driver}.ko`))
}

/** Makes a root of a packed tar, with its hash tree behind it. Throws ProgramError, and Error. */
export async function makeRoot(
  tar: string,
  suffix: string,
  { format, stem, output }: { readonly format: Format; readonly stem: string; readonly output: string },
  { timeLimitMs, most }: { readonly timeLimitMs: number; readonly most: number },
  job: JobContext
): Promise<PackRoot> {
  const { signal } = job
  const course = { signal, timeLimitMs }
  job.line(`making a root in the format ${format}`)
  const said = new Set<string>()
  const onErrorLine = (text: string) => {
    const line = /\bacl\b|posix_acl/.test(text)
      ? 'access control lists are left out'
      : shown(Buffer.from(text))
    if (text.startsWith('Empty tar filename') || said.has(line) || said.size === MOST_SAID) return
    said.add(line)
    job.line(`${program}: ${line}`)
  }
  const { program, words } = MAKERS[format]
  const [decompressor, ...options] = DECOMPRESSORS[suffix as keyof typeof DECOMPRESSORS]
  await rm(output, { force: true })
  const [one, other] = [await pipe(`${output}.1`, course), await pipe(`${output}.2`, course)]
  const ends = await Promise.allSettled([
    run(program, words(output), { ...course, input: other.reader.fd, onErrorLine }).finally(() =>
      other.reader.close()
    ),
    run(decompressor, [...options, tar], { ...course, output: one.writer.fd }).finally(() =>
      one.writer.close()
    ),
    plainTar(one.reader.fd, other.writer.fd, most, course).finally(async () => {
      await one.reader.close()
      await other.writer.close()
    })
  ])
  // The reader of the tar knows the cause; the programs around it see a pipe that ends.
  const [, , reading] = ends
  if (reading.status === 'rejected' && !/EPIPE|ends too early/.test(String(reading.reason)))
    throw reading.reason
  for (const end of ends) if (end.status === 'rejected') throw end.reason
  if (format === 'squashfs') await withoutRootTime(output)
  const size = (await stat(output)).size
  const hashoffset = Math.ceil(size / BLOCK) * BLOCK
  await truncate(output, hashoffset)
  const { stdout } = await run(
    'veritysetup',
    ['format', '--no-superblock', '--salt=-', '--hash=sha256', `--data-block-size=${BLOCK}`].concat([
      ...[`--hash-block-size=${BLOCK}`, `--data-blocks=${hashoffset / BLOCK}`, `--hash-offset=${hashoffset}`],
      ...[output, output]
    ]),
    course
  )
  const [, roothash = ''] = /^Root hash:\s*([0-9a-f]{64})$/m.exec(stdout) ?? []
  if (roothash === '') throw new Error('veritysetup printed no root hash')
  const { sha256, bytes } = await hashFile(output, signal)
  return { file: `${stem}-${sha256.slice(0, 8)}.${format}`, format, sha256, bytes, roothash, hashoffset }
}

/** Sets the root inode's time to 0: mksquashfs 4.5 sets it to now, and `-noI` leaves inodes plain. */
const withoutRootTime = (path: string): Promise<void> =>
  withOpen(open(path, 'r+'), async file => {
    const { buffer: head } = await file.read(Buffer.alloc(96), 0, 96, 0)
    const root = Number(head.readBigUInt64LE(32))
    const block = Math.floor(root / 65_536)
    const blocks = Number(head.readBigUInt64LE(64)) + block
    // Type, mode, uid and gid come before the time. An inode may lie in two blocks of 8192 bytes, each of
    // which has two bytes before it.
    for (let at = (root % 65_536) + 8, left = 4; left > 0; at++, left--)
      await file.write(Buffer.alloc(1), 0, 1, blocks + 2 + at + 2 * Math.floor(at / 8192))
  })

/** Makes a pipe for programs, without a name. */
async function pipe(path: string, course: Limits) {
  await run('mkfifo', ['-m', '600', path], course)
  // Opened for both first: otherwise each end would wait for the other one.
  const both = await open(path, 'r+')
  const [reader, writer] = [await open(path, 'r'), await open(path, 'w')]
  await both.close()
  await rm(path)
  return { reader, writer }
}
