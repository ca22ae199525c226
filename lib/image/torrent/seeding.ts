import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { jsonObject } from '../../base/json.js'
import { requestWhole } from '../../client/request.js'
import { readRegularFile, replaceAmongOthers, replaceFile, unlessMissing } from '../../disk/file.js'
import {
  HTTP_LIMITS,
  readInfoHash,
  type Seeded,
  type Seeder,
  type SeederSettings,
  type Torrent
} from './torrent.js'
import { Transmission } from './transmission.js'

/** Returns the seeder of the ini, for torrents and their files in `files`; undefined where it names none. */
export function chooseSeeder(settings: SeederSettings, files: string): Seeder | undefined {
  const { seeder, seeder_url: url, seeder_secret: secret, seeder_watch: watch } = settings
  if (seeder === 'none') return undefined
  if (seeder === 'aria2') return new Aria2(url, secret, files)
  return watch === '' ? new Transmission(url, secret, files) : new WatchDirectory(watch, files)
}

/** The torrents that svcd gave to the seeder, on disk: no others are removed, also after a restart. */
export class Ledger {
  #given: Map<string, string> | undefined

  constructor(readonly file: string) {}

  /** Throws an Error that names the file when it cannot be read. */
  async read(): Promise<ReadonlyMap<string, string>> {
    try {
      const text = () => unlessMissing(readRegularFile(this.file).then(String), '{}')
      this.#given ??= new Map(Object.entries(JSON.parse(await text())))
      return this.#given
    } catch (error) {
      throw new Error(`${this.file} cannot be read: ${(error as Error).message}`)
    }
  }

  /** Notes the file of a torrent; undefined: the torrent is no longer ours. Durable when it resolves. */
  async set(infoHash: string, name: string | undefined): Promise<void> {
    const given = new Map(await this.read())
    if (name === undefined) given.delete(infoHash)
    else given.set(infoHash, name)
    await replaceFile(this.file, `${JSON.stringify(Object.fromEntries(given), undefined, 2)}\n`, 0o600)
    this.#given = given
  }
}

/** The result of one look at the seeder. */
export interface Kept {
  /** Something was added, started or taken away, so that another look is due soon. */
  readonly changed: boolean
  /** Info hashes of the wanted torrents that it offers. */
  readonly seeding: ReadonlySet<string>
  /** Torrents without a leecher at present. */
  readonly idle: ReadonlySet<string>
  /** One sentence each. */
  readonly problems: readonly string[]
}

/**
 * Makes the seeder offer `torrents` out of `files`, and takes away others that the ledger names. `names`: the
 * wanted files, also unreadable ones. Throws an Error of the seeder's list or the ledger.
 */
export async function keepSeeding(
  seeder: Seeder,
  ledger: Ledger,
  files: string,
  names: ReadonlySet<string>,
  torrents: readonly Torrent[],
  signal: AbortSignal
): Promise<Kept> {
  const given = await ledger.read()
  const all = await seeder.list(signal)
  const problems: string[] = []
  let changed = false
  const attempt = async (name: string, work: () => Promise<void>) => {
    changed = true
    await work().catch(error => {
      signal.throwIfAborted()
      problems.push(`${name}: ${error.message}`)
    })
  }
  const offered: Seeded[] = []
  for (const torrent of torrents) {
    const { name, infoHash } = torrent
    const found = all.filter(seeded => seeded.infoHash === infoHash)
    const loaded = found.find(seeded => seeded.loaded)
    const problem = (loaded ?? found[0])?.problem
    if (problem) problems.push(`${name}: ${problem}`)
    if (loaded && loaded.directory !== files)
      problems.push(`${name}: the seeder has it from ${loaded.directory}, not from ${files}`)
    if (loaded?.seeding) offered.push(loaded)
    if (loaded?.stopped) await attempt(name, () => seeder.start(infoHash, signal))
    if (loaded?.spent && given.has(infoHash))
      await attempt(name, async () => {
        await seeder.remove(infoHash, signal)
        await seeder.add(torrent, signal)
      })
    // Noted first, so that what a crash leaves in the seeder is known to be ours.
    if (!loaded)
      await attempt(name, async () => {
        await ledger.set(infoHash, name)
        if (!(await seeder.add(torrent, signal))) await ledger.set(infoHash, undefined)
      })
  }
  const wanted = new Set(torrents.map(({ infoHash }) => infoHash))
  for (const [infoHash, name] of await ledger.read())
    if (!wanted.has(infoHash) && !names.has(name))
      await attempt(name, async () => {
        const isThere = (seeded: Seeded) => seeded.infoHash === infoHash && seeded.directory === files
        if (all.some(isThere)) await seeder.remove(infoHash, signal)
        await ledger.set(infoHash, undefined)
      })
  const hashes = (some: readonly Seeded[]) => new Set(some.map(({ infoHash }) => infoHash))
  return { changed, seeding: hashes(offered), idle: hashes(offered.filter(({ busy }) => !busy)), problems }
}

/** transmission renames what it has taken. */
const TORRENT = /\.torrent(?:\.added)?$/

/** A watch directory shows nothing of these. */
const unseen = { busy: false, stopped: false, spent: false, problem: '' }

/**
 * A directory where a seeder looks for torrents. The seeder must be set up to find their files in the files
 * directory, and to drop a torrent whose file is taken away. Whether it does cannot be seen from here.
 */
class WatchDirectory implements Seeder {
  constructor(
    readonly directory: string,
    readonly files: string
  ) {}

  async list(): Promise<Seeded[]> {
    const known = { directory: this.files, loaded: true, seeding: true, ...unseen }
    return (await this.#found()).map(({ infoHash }) => ({ infoHash, ...known }))
  }

  async add({ name, infoHash }: Torrent): Promise<boolean> {
    if ((await this.#found()).some(found => found.infoHash === infoHash)) return false
    const torrent = await readFile(join(this.files, name))
    // The seeder need not run as root.
    await inWatch(replaceAmongOthers(join(this.directory, name), torrent, 0o644))
    return true
  }

  async remove(infoHash: string): Promise<void> {
    for (const found of await this.#found())
      if (found.infoHash === infoHash) await inWatch(rm(join(this.directory, found.name), { force: true }))
  }

  async start(): Promise<void> {}

  async #found(): Promise<Torrent[]> {
    const names = (await inWatch(readdir(this.directory))).filter(name => TORRENT.test(name))
    // Unreadable or vanished files are nobody's.
    const all = names.map(async name => ({
      name,
      infoHash: await readInfoHash(join(this.directory, name)).catch(() => '')
    }))
    return Promise.all(all)
  }
}

const inWatch = <T>(work: Promise<T>): Promise<T> =>
  work.catch(error => {
    throw new Error(`[torrent] seeder_watch: ${error.message}`)
  })

const certain = ['gid', 'dir', 'status', 'connections'] as const
/** The last two are there only while the file is checked, or waits to be. */
const possible = ['infoHash', 'seeder', 'errorMessage', 'verifiedLength', 'verifyIntegrityPending'] as const
const keys = [...certain, ...possible]
const MOST = 100_000

/** A download in an answer of aria2: every value is a text. */
type Told = Readonly<
  Record<(typeof certain)[number], string> & Partial<Record<(typeof possible)[number], string>>
>

const options = (dir: string) => ({
  dir,
  'check-integrity': 'true',
  'seed-ratio': '0.0',
  // Ten years in minutes, against a limit in the configuration of aria2.
  'seed-time': '5256000',
  'file-allocation': 'none',
  'bt-tracker-interval': '60',
  pause: 'false',
  // Otherwise it leaves a copy of each torrent beside the image.
  'rpc-save-upload-metadata': 'false'
})

const isLoaded = ({ status }: Told) => ['active', 'waiting', 'paused'].includes(status)

/** The seeder aria2c, started with --enable-rpc, over JSON-RPC. */
class Aria2 implements Seeder {
  readonly #token: string

  constructor(
    readonly url: string,
    secret: string,
    readonly files: string
  ) {
    this.#token = `token:${secret}`
  }

  async list(signal: AbortSignal): Promise<Seeded[]> {
    return (await this.#all(signal)).map(told => ({
      infoHash: told.infoHash ?? '',
      directory: told.dir,
      loaded: isLoaded(told),
      seeding: told.status === 'active' && told.seeder === 'true',
      busy: Number(told.connections) > 0,
      stopped: told.status === 'paused',
      spent: false,
      problem: problem(told)
    }))
  }

  async add(torrent: Torrent, signal: AbortSignal): Promise<boolean> {
    const known = (await this.#all(signal)).filter(({ infoHash }) => infoHash === torrent.infoHash)
    if (known.some(isLoaded)) return false
    await this.#forget(known, signal)
    const metainfo = await readFile(join(this.files, torrent.name), 'base64')
    await this.#call('addTorrent', [metainfo, [], options(this.files)], signal)
    return true
  }

  async remove(infoHash: string, signal: AbortSignal): Promise<void> {
    const known = (await this.#all(signal)).filter(told => told.infoHash === infoHash)
    for (const { gid } of known.filter(isLoaded)) await this.#call('remove', [gid], signal)
    await this.#forget(known, signal)
  }

  async start(infoHash: string, signal: AbortSignal): Promise<void> {
    for (const told of await this.#all(signal))
      if (told.infoHash === infoHash && told.status === 'paused')
        await this.#call('unpause', [told.gid], signal)
  }

  /** Takes ended downloads out of its list. */
  async #forget(known: readonly Told[], signal: AbortSignal): Promise<void> {
    for (const told of known)
      if (!isLoaded(told)) await this.#call('removeDownloadResult', [told.gid], signal)
  }

  async #all(signal: AbortSignal): Promise<Told[]> {
    const ask = (method: string, ...range: number[]) => this.#call<Told[]>(method, [...range, keys], signal)
    const some = ['tellWaiting', 'tellStopped'].map(method => ask(method, 0, MOST))
    const lists = await Promise.all([ask('tellActive'), ...some])
    // A torrent that moves between the lists meanwhile is seen twice: the later one counts.
    return [...new Map(lists.flat().map(told => [told.gid, told])).values()]
  }

  async #call<T>(method: string, params: readonly unknown[], signal: AbortSignal): Promise<T> {
    const order = { method: `aria2.${method}`, params: [this.#token, ...params] }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 'svcd', ...order })
    const answered = await requestWhole({ url: this.url, body, signal, ...HTTP_LIMITS }).catch(error => {
      signal.throwIfAborted()
      throw this.#unusable(error.message)
    })
    const told = jsonObject(answered.body.toString())
    if (!told) throw this.#unusable(`answers with status ${answered.status} and no JSON`)
    const { result, error } = told as { result?: unknown; error?: { message: string } }
    if (error?.message === 'Unauthorized')
      throw new Error(`aria2 at ${this.url} does not take [torrent] seeder_secret`)
    if (error) throw this.#unusable(`refuses ${method}: ${error.message}`)
    return result as T
  }

  #unusable(why: string): Error {
    return new Error(`aria2 at ${this.url} ([torrent] seeder_url): ${why}`)
  }
}

function problem(told: Told): string {
  const { status, errorMessage = '' } = told
  if (status === 'error') return errorMessage || 'not all of the file is right'
  if (status === 'paused') return ''
  if (told.verifiedLength !== undefined || told.verifyIntegrityPending !== undefined) return ''
  if (status === 'waiting') return 'it waits for others (max-concurrent-downloads)'
  return status === 'active' && told.seeder === 'false' ? 'not all of the file is right' : ''
}
