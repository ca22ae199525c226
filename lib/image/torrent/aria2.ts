import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ask, jsonOf } from './http-request.js'
import type { Seeded, Seeder } from './seeder.js'
import type { Torrent } from './torrent.js'

const keys = ['gid', 'infoHash', 'dir', 'status', 'seeder', 'connections', 'errorMessage'].concat(
  'verifiedLength',
  'verifyIntegrityPending'
)
const MOST = 100_000

/** A download as aria2 tells it: every value is a text. */
interface Told {
  readonly gid: string
  readonly infoHash?: string
  readonly dir: string
  readonly status: 'active' | 'waiting' | 'paused' | 'error' | 'complete' | 'removed'
  readonly seeder?: 'true' | 'false'
  readonly connections: string
  readonly errorMessage?: string
  /** Only while the file is checked, or waits to be. */
  readonly verifiedLength?: string
  readonly verifyIntegrityPending?: string
}

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

const isLoaded = ({ status }: Told) => status === 'active' || status === 'waiting' || status === 'paused'

/** The seeder aria2c, started with --enable-rpc, over JSON-RPC. */
export class Aria2 implements Seeder {
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

  /** Does nothing, as it is told to announce every minute. */
  async announce(): Promise<void> {}

  /** Takes ended downloads out of its list. */
  async #forget(known: readonly Told[], signal: AbortSignal): Promise<void> {
    for (const told of known)
      if (!isLoaded(told)) await this.#call('removeDownloadResult', [told.gid], signal)
  }

  async #all(signal: AbortSignal): Promise<Told[]> {
    const lists = await Promise.all([
      this.#call<Told[]>('tellActive', [keys], signal),
      this.#call<Told[]>('tellWaiting', [0, MOST, keys], signal),
      this.#call<Told[]>('tellStopped', [0, MOST, keys], signal)
    ])
    // A torrent that moves from one list to the next meanwhile is seen twice: the later one counts.
    return [...new Map(lists.flat().map(told => [told.gid, told])).values()]
  }

  async #call<T>(method: string, params: readonly unknown[], signal: AbortSignal): Promise<T> {
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 'svcd',
      method: `aria2.${method}`,
      params: [this.#token, ...params]
    })
    const answered = await ask(this.url, signal, { body }).catch(error => {
      signal.throwIfAborted()
      throw this.#unusable(error.message)
    })
    const told = jsonOf<{ result?: unknown; error?: { message: string } }>(answered)
    if (!told) throw this.#unusable(`answers with status ${answered.status} and no JSON`)
    const { result, error } = told
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
