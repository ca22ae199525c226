import { createHash } from 'node:crypto'
import { mkdir, open, readdir, readFile, stat, statfs } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { badRequest } from '../../base/errors.js'
import { isObject, type JsonObject, jsonObject } from '../../base/json.js'
import { oneLine } from '../../base/log.js'
import type { Config } from '../../config/types.js'
import { isFile, refuseLooseMode, unlessMissing, withOpen } from '../../disk/file.js'
import type { RootHelper } from '../../helper/commands.js'
import { MOST_MANIFEST, STORED, skopeoWords } from '../../helper/containers-storage.js'
import { bounded, LEFT_FREE } from '../../helper/growth.js'
import { LAYOUT, LAYOUT_TAG } from '../../helper/unpack.js'
import type { JobContext } from '../../jobs/jobs.js'
import {
  type ImageSource,
  isDigest,
  LONGEST_LABEL,
  MOST_LABELS,
  MOST_LAYERS
} from '../../model/types/osimage.js'
import { environment, type Limits, ProgramError, run } from '../../program/program.js'

/** An image as a registry or an archive describes it. */
export interface Described {
  /** Of the manifest for this platform. */
  readonly digest: string
  /** Bytes of the packed layers; undefined if an archive holds images for several platforms. */
  readonly bytes?: number
  readonly layers: readonly string[]
}

/** Characters of a manifest or a configuration: more of them could hold the event loop. */
const MOST_PARSED = 256 * 1024
const DESCRIBE_MS = 2 * 60_000
/** A registry that sends nothing for so long has stopped. */
const STALL_MS = 2 * 60_000

const platforms: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' }

/** This machine, as images name it. */
export const platform = () => platforms[process.arch] ?? process.arch

/** skopeo and its settings. */
export class Skopeo {
  /** @param stallMs how long a registry may send nothing. `work` reads podman's storage, which is root's. */
  constructor(
    private readonly image: Pick<Config['image'], 'registry_auth' | 'max_unpacked' | 'time_limit'>,
    readonly reference: Reference,
    private readonly work: RootHelper,
    private readonly stallMs = STALL_MS
  ) {}

  /** Throws Error if the source is a file that is missing, or others may read the logins. */
  async check(): Promise<void> {
    const { registry_auth: logins } = this.image
    const { file, registry } = this.reference
    if (file !== undefined && !(await isFile(file))) throw new Error(`there is no file ${file}`)
    if (registry === undefined || logins === '') return
    const told = (error: Error) => {
      throw new Error(`[image] registry_auth: ${error.message}`)
    }
    await refuseLooseMode(logins, 0o037, '0600', 'others may read the logins at registries').catch(told)
  }

  /** Asks for the manifest of this platform. Throws Error in a sentence. */
  async describe(scratch: string, signal: AbortSignal): Promise<Described> {
    const { repository } = this.reference
    const first = await this.#manifest(this.reference.text, scratch, signal)
    const { manifests } = first.json
    if (!Array.isArray(manifests)) return described(first)
    if (repository === undefined) return { digest: first.digest, layers: [] }
    const wanted = platform()
    const fits = manifests.find(one => {
      const { os, architecture } = isObject(one) && isObject(one.platform) ? one.platform : {}
      return os === 'linux' && architecture === wanted
    })
    const digest = digestOf(fits)
    if (!isDigest(digest)) throw new Error(`it holds no image for linux and ${wanted}`)
    const second = await this.#manifest(`${repository}@${digest}`, scratch, signal).catch(error => {
      if (!this.reference.text.startsWith(STORED)) throw error
      const advice = 'it is a list for several platforms, import the image for this one'
      throw new Error(`${advice}: ${error.message}`, { cause: error })
    })
    if (second.digest !== digest) throw new Error(`the registry sent another manifest than ${digest}`)
    return described(second)
  }

  /** Copies the image into `scratch/layout`; `lent` bytes of it are there already, as hard links. */
  async copy(scratch: string, { digest, bytes }: Described, job: JobContext, lent = 0): Promise<void> {
    const { max_unpacked: limit } = this.image
    const { repository, text } = this.reference
    const { bavail, bsize } = await statfs(scratch)
    const room = Math.max(0, bavail * bsize - LEFT_FREE)
    const tooMuch = (size: number, most = limit) => {
      if (size > most) return `the image has more than ${limit} bytes: [image] max_unpacked`
      return size - lent > room
        ? `[paths] files has no room for more than ${room} bytes of an image`
        : undefined
    }
    const why = bytes === undefined ? undefined : tooMuch(bytes)
    if (why !== undefined) throw new Error(why)
    const growth = {
      // Each layer of a storage is in a temporary file first.
      tooMuch: (size: number) => tooMuch(size, text.startsWith(STORED) ? 2 * limit : limit),
      stallMs: this.stallMs,
      measure: () => sizeOf(scratch),
      seen: (size: number) => bytes && job.progress(Math.min(1, size / bytes) * 0.5)
    }
    // The tag may have moved since it was described.
    const from = repository === undefined ? text : `${repository}@${digest}`
    // umoci reads no zstd: skopeo packs such layers anew.
    const words = ['copy', ...this.#login('--src-'), '--dest-compress-format', 'gzip', from]
    const timeLimitMs = this.image.time_limit
    await bounded(growth, job.signal, signal =>
      this.#run([...words, `oci:${layoutIn(scratch)}:${LAYOUT_TAG}`], scratch, { signal, timeLimitMs })
    )
  }

  /** Copies the OCI layout `scratch/layout` to the registry; returns the digest of its manifest there. */
  async push(scratch: string, signal: AbortSignal): Promise<string> {
    const file = join(scratch, 'digest')
    const words = ['copy', ...this.#login('--dest-'), '--digestfile', file]
    const limits = { signal, timeLimitMs: this.image.time_limit }
    const from = `oci:${layoutIn(scratch)}:${LAYOUT_TAG}`
    await this.#run([...words, from, this.reference.text], scratch, limits)
    return (await readFile(file, 'utf8')).trim()
  }

  async #manifest(source: string, scratch: string, signal: AbortSignal) {
    const limits = { signal, timeLimitMs: DESCRIBE_MS, maxOutput: MOST_MANIFEST }
    const words = ['inspect', '--raw', ...this.#login('--'), source]
    const text = await this.#run(words, scratch, limits)
    return { digest: `sha256:${createHash('sha256').update(text).digest('hex')}`, json: objectIn(text) }
  }

  /** The logins are those of the ini, never those of the user's home. */
  #login(prefix: string): string[] {
    const { registry_auth: logins } = this.image
    if (this.reference.registry === undefined) return []
    return logins === '' ? [`${prefix}no-creds`] : [`${prefix}authfile`, logins]
  }

  async #run(words: readonly string[], scratch: string, limits: Limits & { maxOutput?: number }) {
    const stored = words.find(word => word.startsWith(STORED))
    if (stored !== undefined) {
      const image = stored.slice(STORED.length)
      return this.work.call('stored', { layout: basename(scratch), image, copy: words[0] === 'copy' }, limits)
    }
    const temporary = join(scratch, 'tmp')
    await mkdir(temporary, { recursive: true })
    const proxies = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'SSL_CERT_FILE', 'SSL_CERT_DIR']
    const given = proxies.flatMap(name => [name, name.toLowerCase()]).filter(name => process.env[name])
    const env = {
      ...environment(),
      TMPDIR: temporary,
      ...Object.fromEntries(given.map(name => [name, process.env[name]]))
    }
    try {
      return (await run('skopeo', ['--tmpdir', temporary, ...words], { ...limits, env })).stdout
    } catch (error) {
      limits.signal.throwIfAborted()
      throw new Error(inWords(error as Error, this.reference), { cause: error })
    }
  }
}

const layoutIn = (scratch: string) => join(scratch, LAYOUT)

/** Returns the directory of the parts of a layout, each named by its digest. */
export const blobsIn = (scratch: string) => join(layoutIn(scratch), 'blobs/sha256')

const digestOf = (value: unknown) => (isObject(value) ? value.digest : undefined)

const tooMany = (layers: number) =>
  `it has ${layers} layers, and ${MOST_LAYERS} are the most: build it with fewer (buildah build --squash-all)`

/** Returns digest and size of an image's manifest. Throws Error for one that is not taken. */
function described({ digest, json }: { readonly digest: string; readonly json: JsonObject }): Described {
  const { layers } = json
  if (!Array.isArray(layers))
    throw new Error('its manifest has no layers: it is of an old kind, build it again')
  if (layers.length > MOST_LAYERS) throw new Error(tooMany(layers.length))
  let bytes = 0
  for (const layer of layers) {
    const { mediaType, size } = isObject(layer) ? layer : {}
    if (typeof mediaType !== 'string' || typeof size !== 'number' || !(size >= 0))
      throw new Error('its manifest has a layer without a type or a size')
    if (!/[.]tar(?:[+.](?:gzip|zstd))?$/.test(mediaType))
      throw new Error(
        `a layer is ${oneLine(mediaType, 100)}, and svcd takes tar with gzip or zstd: push it with ` +
          '--compression-format gzip'
      )
    bytes += size
  }
  return { digest, bytes, layers: layers.map(digestOf).filter(isDigest) }
}

/** Returns labels and layers of the image in a layout, of which skopeo has checked all digests. */
export async function readLayout(scratch: string): Promise<Pick<ImageSource, 'labels' | 'layers'>> {
  const blob = (digest: unknown) => {
    if (!isDigest(digest)) throw new Error('the image names a part by no digest')
    return join(blobsIn(scratch), digest.slice('sha256:'.length))
  }
  const { manifests } = await readObject(join(layoutIn(scratch), 'index.json'))
  const manifest = await readObject(blob(digestOf(Array.isArray(manifests) ? manifests[0] : undefined)))
  const { config } = await readObject(blob(digestOf(manifest.config)))
  const { layers } = described({ digest: '', json: manifest })
  const labels = isObject(config) && isObject(config.Labels) ? config.Labels : {}
  const isShort = (pair: unknown[]) =>
    pair.every(text => typeof text === 'string' && text.length <= LONGEST_LABEL)
  const kept = Object.entries(labels).filter(isShort).slice(0, MOST_LABELS)
  return { labels: Object.fromEntries(kept) as Record<string, string>, layers }
}

const readObject = (file: string) =>
  withOpen(open(file), async handle => {
    const { size } = await handle.stat()
    if (size > MOST_PARSED) throw new Error(`the image describes itself in more than ${MOST_PARSED} bytes`)
    return objectIn(await handle.readFile('utf8'))
  })

function objectIn(text: string): JsonObject {
  if (text.length > MOST_PARSED) {
    const layers = Math.max(0, text.split('"digest"').length - 2)
    throw new Error(
      layers > MOST_LAYERS ? tooMany(layers) : `its manifest has more than ${MOST_PARSED} bytes`
    )
  }
  const json = jsonObject(text)
  if (!json) throw new Error('its manifest is no JSON object')
  return json
}

/** Returns the bytes of all files below the scratch directory, a few hundred at most. */
async function sizeOf(directory: string): Promise<number> {
  let bytes = 0
  for (const entry of await unlessMissing(readdir(directory, { withFileTypes: true }), [])) {
    const path = join(directory, entry.name)
    if (entry.isDirectory()) bytes += await sizeOf(path)
    else bytes += (await unlessMissing(stat(path), undefined))?.size ?? 0
  }
  return bytes
}

/** The ways out, by the words of skopeo. */
const remedies: readonly (readonly [RegExp, (registry: string) => string])[] = [
  [
    /unauthorized|authentication required|denied/i,
    registry =>
      `give svcd a login: skopeo login --authfile FILE ${registry}, and FILE in [image] registry_auth`
  ],
  [
    /x509|certificate/i,
    registry => `if the registry is yours, put its authority into /etc/containers/certs.d/${registry}/ca.crt`
  ],
  [/policy\.json/, () => 'apt-get install golang-github-containers-common (Rocky: containers-common)'],
  [/HTTP response to HTTPS client/, () => 'the registry has to speak https'],
  [/manifest unknown|name unknown|not found/i, () => 'look at its name and its tag'],
  [/digest|does not match|verif/i, () => 'it sent other bytes than it promised: nothing of them is kept'],
  [
    /\bEOF\b|connection reset|broken pipe|closed network connection|stream error/i,
    () => 'it stopped in the middle: try again'
  ]
]

/** Returns one sentence of a failure, with what to do. It holds no password: skopeo gets none in words. */
function inWords(error: Error, { registry = '' }: Reference): string {
  const words = skopeoWords(error)
  if (!(error instanceof ProgramError) || error.kind !== 'failed') return words
  const remedy = remedies.find(([about]) => about.test(words))?.[1](registry)
  return remedy === undefined ? words : `${words}; ${remedy}`
}

/** A container image as skopeo names it. */
export interface Reference {
  readonly text: string
  /** `registry.example.com:5000`; undefined for an archive, and for an image of this controller's storage. */
  readonly registry?: string
  /** Without tag and digest: `docker://registry.example.com:5000/site/compute`; undefined for an archive. */
  readonly repository?: string
  readonly file?: string
}

const LONGEST = 500

const part = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*'
/** The first part has a dot or a port, or is localhost: without one, skopeo means docker.io. */
const named = new RegExp(
  `^((?:docker://|${STORED}(?!\\[))` +
    '((?:[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+|localhost|[A-Za-z0-9-]+(?=:)|\\[[0-9a-fA-F:]+\\])' +
    `(?::\\d{1,5})?)(?:/${part})+)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`
)
const archive = /^(?:oci|docker)-archive:(\/[^:\u0000-\u001f\u007f]+)(?::[A-Za-z0-9][\w./:@-]*)?$/

/** Reads the source of an import, or the `field` of a push. Throws 400, which repeats no password. */
export function readReference(text: string, about: string, field = 'source'): Reference {
  const invalid = (what: string) => badRequest(`${about}: field "${field}": ${what}`, 'invalid-field')
  const [, repository, registry = ''] = (text.length <= LONGEST && named.exec(text)) || []
  if (repository !== undefined) {
    // skopeo takes a tag or a digest.
    if (/^:.*@/.test(text.slice(repository.length)))
      throw invalid('it has a tag and a digest: leave one of them out')
    return { text, repository, ...(text.startsWith(STORED) ? {} : { registry }) }
  }
  const file = text.length <= LONGEST ? archive.exec(text)?.[1] : undefined
  if (file !== undefined && !file.split('/').includes('..')) return { text, file }
  if (/^docker:\/\/[^/]*@/.test(text))
    throw invalid('it holds a login: put that into the file of [image] registry_auth')
  throw invalid(
    'it must be docker://REGISTRY/NAME[:TAG|@sha256:DIGEST], oci-archive:/PATH, docker-archive:/PATH, or ' +
      `${STORED}NAME[:TAG|@sha256:DIGEST] with a NAME like localhost/compute (podman images)`
  )
}
