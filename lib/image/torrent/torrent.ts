import { createHash, webcrypto } from 'node:crypto'
import { open } from 'node:fs/promises'
import { fillBuffer, replaceFile, withOpen } from '../../disk/file.js'

/** A bencoded value (BEP 3). Keys are bytes as latin1, since a tracker uses info hashes as keys. */
type Bencoded = number | Buffer | readonly Bencoded[] | ReadonlyMap<string, Bencoded>

/** Limits of trackers and seeders over http. The answer of a seeder with 10,000 torrents is smaller. */
export const HTTP_LIMITS = { wholeMs: 10_000, most: 32 << 20 }

/** Encodes a value. There is only one encoding, as the keys are sorted. */
export function encode(value: Bencoded): Buffer {
  if (typeof value === 'number') return Buffer.from(`i${value}e`)
  if (Buffer.isBuffer(value)) return Buffer.concat([Buffer.from(`${value.length}:`), value])
  const parts = isMap(value)
    ? [...value.keys()]
        .sort()
        .flatMap(key => [encode(Buffer.from(key, 'latin1')), encode(value.get(key) as Bencoded)])
    : value.map(encode)
  return Buffer.concat([Buffer.from(isMap(value) ? 'd' : 'l'), ...parts, Buffer.from('e')])
}

/** Reads the one value of the bytes. Throws an Error saying at which byte it is not valid. */
export const decode = (bytes: Buffer): Bencoded => new Reader(bytes).whole()

/** Returns an entry of a dictionary; undefined for any other value. */
export const entry = (value: Bencoded | undefined, key: string): Bencoded | undefined =>
  isMap(value) ? value.get(key) : undefined

/** Whether a value is a dictionary. */
export const isMap = (value: Bencoded | undefined): value is ReadonlyMap<string, Bencoded> =>
  value instanceof Map

const MAX_DEPTH = 32
const [END, INTEGER, LIST, DICTIONARY] = ['e', 'i', 'l', 'd'].map(letter => letter.charCodeAt(0))

class Reader {
  #at = 0

  constructor(readonly bytes: Buffer) {}

  whole(): Bencoded {
    const value = this.#value(0)
    if (this.#at !== this.bytes.length) throw this.#wrong()
    return value
  }

  #value(depth: number): Bencoded {
    const letter = this.bytes[this.#at]
    if (depth > MAX_DEPTH) throw this.#wrong()
    if (letter === INTEGER) {
      this.#at++
      return this.#number(/^(?:0|-?[1-9]\d{0,15})$/, 'e')
    }
    if (letter === LIST) return this.#items(() => this.#value(depth + 1))
    if (letter === DICTIONARY)
      return new Map(this.#items(() => [this.#text().toString('latin1'), this.#value(depth + 1)]))
    return this.#text()
  }

  /** Reads what stands between the letter of a list or a dictionary and its end. */
  #items<T>(read: () => T): T[] {
    const items: T[] = []
    this.#at++
    while (this.bytes[this.#at] !== END) items.push(read())
    this.#at++
    return items
  }

  #text(): Buffer {
    const length = this.#number(/^(?:0|[1-9]\d{0,8})$/, ':')
    const text = this.bytes.subarray(this.#at, this.#at + length)
    if (text.length !== length) throw this.#wrong()
    this.#at += length
    return text
  }

  /** Reads digits up to `end` and passes over that. */
  #number(form: RegExp, end: string): number {
    const text = this.bytes.toString('latin1', this.#at, this.#at + 20)
    const digits = text.slice(0, text.indexOf(end))
    const number = form.test(digits) ? Number(digits) : Number.NaN
    if (!text.includes(end) || !Number.isSafeInteger(number)) throw this.#wrong()
    this.#at += digits.length + 1
    return number
  }

  #wrong(): Error {
    return new Error(`is not bencoded (byte ${this.#at})`)
  }
}

/** A torrent in the files directory. */
export interface Torrent {
  /** File name, `<imagefile>.torrent`. */
  readonly name: string
  /** SHA-1 of its info dictionary in hexadecimal, by which seeders and trackers know it. */
  readonly infoHash: string
}

/** A larger file is no torrent of an image. */
const MAX_TORRENT = 8 << 20
const MAX_PIECES = 2048
const LEAST_PIECE = 256 << 10
const LONGEST_PIECE = 32 << 20

/** Returns the bytes per piece: small ones spread sooner, but each costs room and messages. */
export function pieceLength(bytes: number): number {
  let length = LEAST_PIECE
  while (bytes / length > MAX_PIECES && length < LONGEST_PIECE) length *= 2
  return length
}

/**
 * Writes the private torrent of one file, the same bytes for the same file, name and tracker, hashed in
 * node's thread pool; `output` is replaced as a whole. Throws an Error for an empty file or one that changes,
 * or the signal's reason.
 */
export async function createTorrent(request: {
  readonly file: string
  readonly name: string
  readonly announce: string
  readonly output: string
  readonly signal: AbortSignal
}): Promise<{ readonly infoHash: string }> {
  const { bytes, length, pieces } = await hashPieces(request.file, request.signal)
  const info = new Map<string, number | Buffer>([
    ['length', bytes],
    ['name', Buffer.from(request.name)],
    ['piece length', length],
    ['pieces', pieces],
    ['private', 1]
  ])
  const torrent = encode(
    new Map<string, Buffer | typeof info>([
      ['announce', Buffer.from(request.announce)],
      ['info', info]
    ])
  )
  request.signal.throwIfAborted()
  await replaceFile(request.output, torrent, 0o600)
  return { infoHash: hashOf(encode(info)) }
}

/** Returns the info hash of a torrent file. Throws an Error that names the file. */
export async function readInfoHash(file: string): Promise<string> {
  try {
    const info = entry(await readTorrent(file), 'info')
    if (!isMap(info)) throw new Error('it has no info')
    return hashOf(encode(info))
  } catch (error) {
    throw new Error(`torrent ${file} cannot be used: ${(error as Error).message}`)
  }
}

/** Reads the announce URL of a torrent; undefined where there is no torrent. */
export async function readAnnounce(file: string): Promise<string | undefined> {
  const announce = entry(await readTorrent(file).catch(() => undefined), 'announce')
  return Buffer.isBuffer(announce) ? announce.toString() : undefined
}

const readTorrent = (file: string): Promise<Bencoded> =>
  withOpen(open(file, 'r'), async handle => {
    const { size } = await handle.stat()
    if (size > MAX_TORRENT) throw new Error('it is too large')
    return decode(await handle.readFile())
  })

const hashOf = (info: Buffer) => createHash('sha1').update(info).digest('hex')

const hashPieces = (file: string, signal: AbortSignal) =>
  withOpen(open(file, 'r'), async handle => {
    const { size: bytes } = await handle.stat()
    if (bytes === 0) throw new Error(`${file} is empty: there is nothing to make a torrent of`)
    const length = pieceLength(bytes)
    const buffer = Buffer.allocUnsafeSlow(length)
    const hashes: Buffer[] = []
    let read = 0
    while (read < bytes) {
      signal.throwIfAborted()
      const bytesRead = await fillBuffer(handle, buffer)
      if (bytesRead === 0) break
      read += bytesRead
      hashes.push(Buffer.from(await webcrypto.subtle.digest('SHA-1', buffer.subarray(0, bytesRead))))
    }
    if (read !== bytes || (await handle.stat()).size !== bytes)
      throw new Error(`${file} changed while its torrent was made`)
    return { bytes, length, pieces: Buffer.concat(hashes) }
  })

/** A torrent as the seeder has it. */
export interface Seeded {
  readonly infoHash: string
  /** Where the seeder looks for the file. */
  readonly directory: string
  /** False for a torrent that it only remembers: it must be added again. */
  readonly loaded: boolean
  /** It has the whole file and offers it; in a watch directory that is assumed. */
  readonly seeding: boolean
  /** Peers are connected to it. */
  readonly busy: boolean
  /** It must be started again. */
  readonly stopped: boolean
  /** It must be removed and added again, or it will not serve a node a second time. */
  readonly spent: boolean
  /** The problem in a few words; '' for none. */
  readonly problem: string
}

/** The seeder of the system. Each method throws an Error that names the ini key. */
export interface Seeder {
  /** All its torrents, also those of others. */
  list(signal: AbortSignal): Promise<Seeded[]>
  /** False when it had that torrent already. */
  add(torrent: Torrent, signal: AbortSignal): Promise<boolean>
  /** The file stays. */
  remove(infoHash: string, signal: AbortSignal): Promise<void>
  start(infoHash: string, signal: AbortSignal): Promise<void>
  /** Makes the seeder announce it, for which it may stop the torrent. Absent: it does so by itself. */
  announce?(infoHash: string, signal: AbortSignal): Promise<void>
}

/** The keys of `[torrent]` that lead to the seeder. */
export interface SeederSettings {
  readonly seeder: 'none' | 'transmission' | 'aria2'
  readonly seeder_url: string
  /** transmission: `user:password` or empty; aria2: its RPC secret. */
  readonly seeder_secret: string
  /** Of transmission. Where it is set, torrents are put there, and nothing is sent to the seeder. */
  readonly seeder_watch: string
}
