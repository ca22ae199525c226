import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { arch, release } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { timeLimited } from '../../concurrency.js'
import { openInside } from '../../disk/open-directory.js'
import type { Initramfs, InitramfsRequest } from './initramfs.js'
import { shipped } from './sandbox.js'
import { changeSince, entriesBefore, type Prints, seenSince } from './traces.js'

/** The initramfs that a pack takes. */
export interface Renewed extends Initramfs {
  /** False: it is that of the pack before. */
  readonly isBuilt: boolean
  /** For the next time; undefined where it was not built, and where it has to be built the next time too. */
  readonly record?: string
}

interface Renewal extends Omit<InitramfsRequest, 'tree' | 'byRoot'> {
  /** Where the image lies, for messages and for the record. */
  readonly path: string
  /** The image's directory, held open. */
  readonly tree: string
  /** What the last build gave for this image. */
  readonly record?: string | undefined
  build(): Promise<Initramfs | undefined>
}

/** What is known of a build. */
interface Build extends Initramfs {
  /** Of all that went into it but the image. */
  readonly key: string
  /** Of the initramfs. */
  readonly sha256: string
  readonly seen: Prints
}

/** In the line that goes to svcd, which takes no longer one than 16 MiB. */
const LONGEST_RECORD_BYTES = 4 * 1024 * 1024

const CHUNK_BYTES = 1024 * 1024

/**
 * Gives an image's initramfs: the one that the last build made, where nothing has changed of what that build has seen,
 * else a new one. undefined where the image has no tool to build it. Whatever is in doubt is built. Throws what `build`
 * throws.
 */
export async function renewInitramfs(renewal: Renewal): Promise<Renewed | undefined> {
  const { tree, path, signal, timeLimitMs, line, build } = renewal
  const key = await keyOf(renewal)
  const kept = renewal.record === undefined ? undefined : parse(renewal.record)
  const why = await whyBuild(renewal, key, kept).catch(error => (error as Error).message)
  if (kept !== undefined && why === undefined) {
    line('the initramfs of the last pack is used: nothing that it is made of has changed')
    return { tool: kept.tool, initrd: kept.initrd, isBuilt: false }
  }
  line(`the initramfs is built: ${why}`)
  const limits = { signal, timeLimitMs }
  const doubt = (error: Error) => {
    line(`the next pack builds the initramfs again: ${error.message}`)
    return undefined
  }
  const before = await entriesBefore(tree, limits).catch(doubt)
  const built = await build()
  if (built === undefined || before === undefined) return built && { ...built, isBuilt: true }
  const recorded = async () => {
    const { tool, initrd } = built
    const program = tool === 'dracut' ? tool : 'mkinitramfs'
    const [seen, sha256] = await Promise.all([
      seenSince(before, tree, program, `./${initrd}`, limits),
      checksum(tree, initrd, path, limits)
    ])
    return written({ key, tool, initrd, sha256, seen })
  }
  const record = await recorded().catch(doubt)
  return { ...built, isBuilt: true, ...(record === undefined ? {} : { record }) }
}

/** Why the initramfs has to be built, as a sentence; undefined where the kept one is as a new one would be. */
async function whyBuild(
  { tree, path, signal, timeLimitMs }: Renewal,
  key: string,
  kept: Build | undefined
): Promise<string | undefined> {
  if (kept === undefined) return 'nothing is known of an earlier build'
  if (kept.key !== key) return 'its kernel, its modules, svcd or this machine is another one'
  const limits = { signal, timeLimitMs }
  const [changed, sha256] = await Promise.all([
    changeSince(kept.seen, tree, `./${kept.initrd}`, limits),
    checksum(tree, kept.initrd, path, limits).catch(() => undefined)
  ])
  if (sha256 !== kept.sha256) return `/${kept.initrd} is not the one that was built`
  return changed
}

/** Read in pieces, which is faster than to start a thread for it. */
async function checksum(
  tree: string,
  initrd: string,
  path: string,
  limits: Parameters<typeof timeLimited>[0]
): Promise<string> {
  const file = await openInside(tree, initrd, path)
  const hash = createHash('sha256')
  const options = { highWaterMark: CHUNK_BYTES, signal: timeLimited(limits) }
  for await (const chunk of file.createReadStream(options)) hash.update(chunk)
  return hash.digest('hex')
}

/** All that goes into an initramfs beside the image: what is asked for, svcd's own part, and the running kernel. */
async function keyOf({ path, kernelversion, dracutmodules, kernelmodules }: Renewal): Promise<string> {
  const hash = createHash('sha256')
  hash.update(JSON.stringify([path, kernelversion, dracutmodules, kernelmodules, release(), arch()]))
  const own = [`${shipped}package.json`, fileURLToPath(new URL('./sandbox.js', import.meta.url))]
  for (const directory of ['dracut', 'initramfs-tools', 'libexec'])
    for (const entry of await readdir(`${shipped}${directory}`, { recursive: true, withFileTypes: true }))
      if (entry.isFile()) own.push(join(entry.parentPath, entry.name))
  for (const file of own.sort())
    hash.update(JSON.stringify([file.slice(shipped.length), (await readFile(file)).toString('base64')]))
  return hash.digest('hex')
}

const sha256Of = (text: string) => createHash('sha256').update(text).digest('hex')

/** A build as a text with its own checksum. Throws Error where it is too long. */
function written(build: Build): string {
  const text = JSON.stringify(build)
  const record = `${sha256Of(text)} ${text}`
  if (Buffer.byteLength(JSON.stringify(record)) > LONGEST_RECORD_BYTES)
    throw new Error('the image has too many files to remember')
  return record
}

/** undefined for a text that is not whole. */
function parse(record: string): Build | undefined {
  const text = record.slice(65)
  return record.slice(0, 65) === `${sha256Of(text)} ` ? JSON.parse(text) : undefined
}
