import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { jsonObject } from '../../base/json.js'
import { type Response, requestWhole } from '../../client/request.js'
import { HTTP_LIMITS, type Seeded, type Seeder, type Torrent } from './torrent.js'

const SESSION = 'x-transmission-session-id'
const texts = ['hashString', 'downloadDir', 'errorString'] as const
const modes = ['seedRatioMode', 'seedIdleMode'] as const
/**
 * `status`: 0 stopped, 1 and 2 checking, 3 and 4 downloading, 5 waiting to seed, 6 seeding; `error`: 1 and 2
 * are of the tracker, 3 is local; `uploadedEver`: bytes, since it was added.
 */
const numbers = ['status', 'error', 'percentDone', 'peersConnected', 'uploadedEver', ...modes] as const

/** The modes of a torrent without a limit, whatever limits the session has. */
const unlimited = { seedRatioMode: 2, seedIdleMode: 2 }

type Told = Readonly<Record<(typeof texts)[number], string> & Record<(typeof numbers)[number], number>>

/** The seeder transmission-daemon over its RPC, version 15 and later. */
export class Transmission implements Seeder {
  readonly #authorization: string
  #session = ''

  constructor(
    readonly url: string,
    secret: string,
    readonly files: string
  ) {
    this.#authorization = secret === '' ? '' : `Basic ${Buffer.from(secret).toString('base64')}`
  }

  async list(signal: AbortSignal): Promise<Seeded[]> {
    const fields = [...texts, ...numbers]
    const { torrents } = await this.#call<{ torrents: readonly Told[] }>('torrent-get', { fields }, signal)
    return torrents.map(told => ({
      infoHash: told.hashString.toLowerCase(),
      directory: told.downloadDir,
      loaded: true,
      seeding: told.status === 6,
      busy: told.peersConnected > 0,
      stopped: told.status === 0 && told.error !== 3,
      // Version 3 knows peers by their address: a peer that has had the whole file is a seed for ever, and is
      // turned away when it asks again. A torrent that was added and not set up has the limits of the
      // session.
      spent: told.status === 6 && told.peersConnected === 0 && (told.uploadedEver > 0 || isLimited(told)),
      problem: problem(told)
    }))
  }

  async add({ name, infoHash }: Torrent, signal: AbortSignal): Promise<boolean> {
    const metainfo = await readFile(join(this.files, name), 'base64')
    const args = { metainfo, 'download-dir': this.files, paused: false }
    const added = await this.#call<object>('torrent-add', args, signal)
    if ('torrent-duplicate' in added) return false
    // An image is offered as long as svcd wants it, whatever limits the session has.
    await this.#call('torrent-set', { ids: [infoHash], ...unlimited }, signal)
    return true
  }

  async remove(infoHash: string, signal: AbortSignal): Promise<void> {
    await this.#call('torrent-remove', { ids: [infoHash], 'delete-local-data': false }, signal)
  }

  async start(infoHash: string, signal: AbortSignal): Promise<void> {
    await this.#call('torrent-start', { ids: [infoHash] }, signal)
  }

  /** Stops the torrent: its start announces at once, a request to announce waits for the interval. */
  async announce(infoHash: string, signal: AbortSignal): Promise<void> {
    await this.#call('torrent-stop', { ids: [infoHash] }, signal)
  }

  async #call<T>(method: string, args: object, signal: AbortSignal): Promise<T> {
    let answered = await this.#post(method, args, signal)
    const session = answered.headers[SESSION]
    if (answered.status === 409 && typeof session === 'string') {
      this.#session = session
      answered = await this.#post(method, args, signal)
    }
    const { status } = answered
    if (status === 401)
      throw new Error(`transmission at ${this.url} does not take [torrent] seeder_secret (user:password)`)
    if (status !== 200) throw this.#unusable(`answers ${method} with status ${status}`)
    const answer = jsonObject(answered.body.toString())
    if (!answer) throw this.#unusable('does not answer in JSON')
    const { result, arguments: told } = answer
    if (result !== 'success') throw this.#unusable(`refuses ${method}: ${result}`)
    return told as T
  }

  async #post(method: string, args: object, signal: AbortSignal): Promise<Response<Buffer>> {
    const headers: Record<string, string> = { 'content-type': 'application/json', [SESSION]: this.#session }
    if (this.#authorization !== '') headers.authorization = this.#authorization
    const body = JSON.stringify({ method, arguments: args })
    return requestWhole({ url: this.url, headers, body, signal, ...HTTP_LIMITS }).catch(error => {
      signal.throwIfAborted()
      throw this.#unusable(error.message)
    })
  }

  #unusable(why: string): Error {
    return new Error(`transmission at ${this.url} ([torrent] seeder_url): ${why}`)
  }
}

const isLimited = ({ seedRatioMode, seedIdleMode }: Told) =>
  seedRatioMode !== unlimited.seedRatioMode || seedIdleMode !== unlimited.seedIdleMode

function problem({ status, percentDone, error, errorString }: Told): string {
  if (error === 3) return errorString
  if (status === 5) return 'it waits in the queue of seeds (seed-queue-enabled)'
  const percent = Math.floor(percentDone * 100)
  return status === 3 || status === 4 ? `only ${percent} % of the file are right` : ''
}
