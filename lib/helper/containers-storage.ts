import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { oneLine } from '../base/log.js'
import { exists, unlessMissing } from '../disk/file.js'
import { type Limits, ProgramError, run } from '../program/program.js'
import { resolveRoots } from './directories.js'
import { LAYOUT, LAYOUT_TAG } from './unpack.js'

/** How skopeo names an image in the storage of podman and buildah. */
export const STORED = 'containers-storage:'
/** skopeo itself reads no larger manifest. */
export const MOST_MANIFEST = 4 * 2 ** 20

/** A copy reads under a lock of the storage, which builds wait for. */
const LONGEST_MS = 4 * 3_600_000
/** Where without-links.sh shows a storage. */
const ONLY_SHOWN = '/only'

/** A storage of podman and buildah: its directory, and the driver that made it. */
export interface Storage {
  readonly path: string
  readonly driver: string
}

/** An image, named as podman shows it. */
interface Reading extends Limits {
  readonly image: string
  readonly copy: boolean
  /** The command prefix, and the directory of an import and a missing path as skopeo sees them. */
  readonly through: readonly string[]
  readonly paths: readonly string[]
  readonly nothing: string
}

/**
 * Returns the manifest of an image in a storage, or copies it into the layout of an import. skopeo has an
 * empty storage of its own in memory, and a root of its own (without-links.sh), as an image records names
 * that may lead through links and upwards. Throws Error in a sentence.
 */
export async function readStored({ path, driver }: Storage, reading: Reading): Promise<string> {
  const { image, copy, through, nothing, signal } = reading
  const timeLimitMs = Math.min(reading.timeLimitMs, LONGEST_MS)
  const [scratch = ''] = reading.paths
  if (!/^[A-Za-z0-9][\w.:@/-]{0,499}$/.test(image)) throw new Error('that is no name of a container image')
  if (through.length === 0) throw new Error('to read it without a mount namespace is not permitted')
  const own = `${driver}@${nothing}/root+${nothing}/run`
  const source = `${STORED}[${own}:${driver}.imagestore=${ONLY_SHOWN}]${image}`
  // Unpacked layers would be faster, but skopeo 1.9 gives those of a fetched image the type of packed ones.
  const words = copy
    ? ['copy', '--dest-compress-format', 'gzip', source, `oci:${scratch}/${LAYOUT}:${LAYOUT_TAG}`]
    : ['inspect', '--raw', source]
  // svcd reads what root writes there.
  const wrapper = [...through, 'sh', '-c', 'umask 022 && exec "$@"', 'sh']
  try {
    const options = { signal, timeLimitMs, wrapper, maxOutput: MOST_MANIFEST }
    return (await run('skopeo', ['--tmpdir', scratch, ...words], options)).stdout
  } catch (error) {
    const said = skopeoWords(error as Error)
    const isMissing = /does not resolve to an image ID/.test(said)
    throw new Error(isMissing ? `there is no image ${image} in ${path}: podman images lists them` : said)
  }
}

/** Finds the storage of the ini and its driver. Throws Error if others than root could replace it. */
export async function storageIn(storage = ''): Promise<Storage> {
  const key = '[image] containers_storage'
  const remedy = 'put containers_storage = /var/lib/containers/storage there, and type systemctl restart svcd'
  if (storage === '') throw new Error(`${key} is empty in svcd.ini: ${remedy}`)
  const uid = (await unlessMissing(stat(storage), undefined))?.uid ?? 0
  // To give it to root, as the message below says, would take it away from its user's podman.
  if (uid !== 0)
    throw new Error(
      `${key} ${storage} belongs to user ${uid}: podman save --format oci-archive, and import that file`
    )
  const path = await unlessMissing(resolveRoots(key, storage), '')
  for (const driver of ['overlay', 'vfs'])
    if (/^[\w./-]+$/.test(path) && (await exists(join(path, `${driver}-images`)))) return { path, driver }
  throw new Error(`${key} ${storage} is no storage by overlay or vfs: podman info shows it as graphRoot`)
}

/** Returns the words of a failure of skopeo, without the options of a storage. */
export function skopeoWords(error: Error): string {
  if (!(error instanceof ProgramError) || error.kind !== 'failed') return error.message
  const last = error.stderr.split('\n').findLast(line => /level=(?:fatal|error)/.test(line)) ?? ''
  const [, quoted] = /msg="((?:[^"\\]|\\.)*)"/.exec(last) ?? []
  const unquoted = (quoted ?? error.message).replaceAll('\\n', ' ').replace(/\\(.)/g, '$1')
  const words = unquoted.replace(/^Error parsing image name "[^"]*": /, '').replace(/\[\w+@[^\]]*\]/g, '')
  return oneLine(words.trim(), 500)
}
