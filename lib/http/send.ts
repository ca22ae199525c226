import { once } from 'node:events'
import { isAbsolute } from 'node:path'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { createGzip, type Gzip, gzip } from 'node:zlib'
import { PerTurn } from '../base/concurrency.js'
import type { Log } from '../base/log.js'
import { addressBlockOf } from '../base/request-source.js'
import type { ConcurrencyLimits, Slot } from './admission/concurrency-limit.js'
import type { Connections } from './admission/connections.js'
import { SendBufferBudget } from './admission/send-buffer-budget.js'
import { Downloads } from './downloads.js'
import type { Exchange } from './exchange.js'
import type { Feeds } from './feeds.js'
import {
  type FileAnswer,
  type FrontFiles,
  fileAnswer,
  frontLocation,
  type OpenFile,
  OpenFiles,
  SmallFileCache
} from './files.js'
import { Forwards } from './forwards.js'
import { LongText, pauses, reuse } from './long-text.js'
import type { Answer, Feed, Forwarded } from './route.js'

/** Shorter texts are not compressed. */
const LEAST_COMPRESSED = 8192

const zip = promisify<string, Buffer>(gzip)

const framing = new Set(['content-type', 'content-length', 'transfer-encoding', 'connection'])

interface SenderOptions<C> {
  readonly slots: ConcurrencyLimits
  readonly connections: Connections
  readonly feeds: Feeds
  /** Cuts the connection when the client has taken nothing for this long. */
  readonly stallMs: number
  /** Files that front servers send themselves, and whether a peer is one. */
  readonly frontFiles: FrontFiles | undefined
  readonly isFront: (peer: string) => boolean
  /** Whether the caller is still authorized; asked while a feed is sent. */
  isStillAuthorized(exchange: Exchange<C>): Promise<boolean>
  readonly log: Log
}

/** Writes the answers of handlers to sockets. */
export class Sender<C> {
  readonly #files: OpenFiles
  readonly #smallFiles: SmallFileCache
  readonly #downloads: Downloads
  readonly #forwards: Forwards
  /** Makes one piece of all lists in a turn of the event loop. */
  readonly #listPieces = new PerTurn(1)
  readonly #sendBufferBudget: SendBufferBudget

  constructor(private readonly o: SenderOptions<C>) {
    this.#files = new OpenFiles(o.connections)
    this.#smallFiles = new SmallFileCache(this.#files)
    this.#downloads = new Downloads(o.slots.downloads)
    this.#forwards = new Forwards(o.slots.forwards)
    this.#sendBufferBudget = new SendBufferBudget(o.log)
  }

  /**
   * Writes an answer to the socket. Content-Length is exact, JSON ends in a newline, a 204 has no body, HEAD
   * gets the head alone (rules 1.5, 2.5). Before the first byte it throws or rejects with ServiceError 404,
   * 416 or 503 for a file, and TypeError for an invalid answer; an error after that means that the connection
   * must be cut. Returns a promise only where it has to wait.
   */
  send(exchange: Exchange<C>, answer: Answer): void | Promise<void> {
    checkAnswer(answer)
    const { status, forwarded, file, feed, json, bytes, type } = answer
    if (forwarded !== undefined) return this.#forward(exchange, forwarded)
    if (file !== undefined) return this.#file(exchange, answer, file)
    if (feed !== undefined) return this.#feed(exchange, answer, feed)
    if (json !== undefined && typeof json !== 'string') return this.#parts(exchange, answer, json)
    if (bytes !== undefined) return this.#text(exchange, answer, bytes, type)
    const text = textOf(answer)
    if (status === 204 || text === undefined) return this.#text(exchange, answer, '', undefined)
    const usual = answer.text === undefined ? 'application/json' : 'text/plain; charset=utf-8'
    return this.#whole(exchange, answer, text, type ?? usual)
  }

  /** Writes the head. `headers` that frame the message are ignored. Without `length` the body is chunked. */
  head(
    exchange: Exchange<C>,
    status: number,
    type: string | undefined,
    headers: Answer['headers'],
    length?: number
  ): void {
    const all: Record<string, string | number> = {}
    if (type !== undefined) all['Content-Type'] = type
    if (status !== 204 && length !== undefined) all['Content-Length'] = length
    if (exchange.isLast || this.o.connections.closing) all.Connection = 'close'
    for (const name in headers) if (!framing.has(name.toLowerCase())) all[name] = headers[name] as string
    exchange.outgoing.writeHead(status, all)
    exchange.status = status
  }

  /** Sends a text at once, compressed where that is worth it. */
  #whole(exchange: Exchange<C>, answer: Answer, text: string, type: string): void | Promise<void> {
    if (!answer.compress || text.length < LEAST_COMPRESSED) return this.#text(exchange, answer, text, type)
    return zip(text).then(zipped => {
      if (!exchange.gone) this.#text(exchange, gzipped(answer), zipped, type)
    })
  }

  #text(
    exchange: Exchange<C>,
    answer: Pick<Answer, 'status' | 'headers' | 'etag'>,
    text: string | Buffer,
    type: string | undefined
  ): void {
    const length = Buffer.byteLength(text)
    // ASCII: as UTF-8 node:http would copy it to three times its memory, and scan it once more.
    const encoding = typeof text === 'string' && length === text.length ? 'latin1' : 'utf8'
    this.head(exchange, answer.status, type, headersOf(answer), length)
    exchange.bytes = exchange.headOnly ? 0 : length
    // node:http drops the text for HEAD and 204.
    exchange.outgoing.end(text, encoding)
    // The system takes nearly every answer at once.
    if (exchange.incoming.socket.writableLength === 0) return
    this.#cutWhenStalled(exchange)
    this.#sendBufferBudget.add(exchange, length)
    exchange.outgoing.once('close', () => this.#sendBufferBudget.remove(exchange))
  }

  /** Sends a text that may be long, a piece in each turn of the event loop. */
  #parts(exchange: Exchange<C>, answer: Answer, parts: Iterable<string>): Promise<void> {
    const text = new LongText(parts)
    return this.o.slots.lists
      .run(exchange, slot => this.#longText(exchange, answer, text, slot))
      .finally(() => text.forget())
  }

  async #longText(exchange: Exchange<C>, answer: Answer, text: LongText, slot: Slot): Promise<void> {
    const type = answer.type ?? 'application/json'
    // Client addresses take turns.
    const inTurn = <R>(make: () => R) => this.#listPieces.run(addressBlockOf(exchange.address), make)
    const making = answer.etag && pauses(answer.etag.making())
    while (making && !exchange.gone && !(await inTurn(() => making.next())).done);
    const measured = text.measuring()
    const first = (await inTurn(() => measured.next())).value
    if ((await inTurn(() => measured.next())).done)
      return this.#whole(exchange, answer, first?.parts.join('') ?? '', type)
    // On a busy machine a short text comes in pieces too.
    const compress = answer.compress && !exchange.headOnly && text.bytes >= LEAST_COMPRESSED
    // A compressed answer has no length in its head.
    while (!compress && !exchange.gone && !(await inTurn(() => measured.next())).done);
    if (exchange.gone) return
    const headers = headersOf(compress ? gzipped(answer) : answer)
    this.head(exchange, answer.status, type, headers, compress ? undefined : text.bytes)
    if (exchange.headOnly) return void exchange.outgoing.end()
    this.#cutWhenStalled(exchange)
    const compressing = compress ? compressInto(exchange) : undefined
    const sink = compressing?.zip ?? exchange.outgoing
    const sent = text.sending()
    for (let next = await inTurn(() => sent.next()); !next.done; next = await inTurn(() => sent.next())) {
      if (exchange.gone) return
      if (!compress) exchange.bytes += next.value.length
      await this.#piece(exchange, sink, next.value, slot)
    }
    sink.end()
    await compressing?.done
  }

  /** Resolves when more may be written. */
  async #piece(exchange: Exchange<C>, sink: Writable, bytes: Buffer, slot: Slot): Promise<void> {
    if (bytes.length === 0 || sink.write(bytes, error => !error && reuse(bytes))) return
    slot.stalledSinceMs = performance.now()
    this.#sendBufferBudget.add(exchange, bytes.length)
    await drained(exchange, sink)
    this.#sendBufferBudget.remove(exchange)
    slot.stalledSinceMs = undefined
  }

  async #feed(exchange: Exchange<C>, answer: Answer, feed: Feed): Promise<void> {
    const { status, type, headers, subscriber } = answer
    const begin = () => {
      this.head(exchange, status, type, headers)
      this.#cutWhenStalled(exchange)
    }
    const isStillAuthorized = () => this.o.isStillAuthorized(exchange)
    if (!exchange.headOnly) return this.o.feeds.run(exchange, { feed, begin, isStillAuthorized, subscriber })
    this.head(exchange, status, type, headers)
    exchange.outgoing.end()
  }

  #forward(exchange: Exchange<C>, forwarded: Forwarded): Promise<void> {
    return this.#forwards.run(exchange, forwarded, (status, headers, length) => {
      this.head(exchange, status, headers['content-type'], headers, length)
      this.#cutWhenStalled(exchange)
    })
  }

  async #file(exchange: Exchange<C>, answer: Answer, path: string): Promise<void> {
    const { headOnly, outgoing, incoming } = exchange
    const answerOf = (file: OpenFile) => fileAnswer(file, answer, incoming.headers, headOnly)
    /** Runs `use` with the open file, unless the client has left. */
    const withOpen = (use: (file: FileAnswer) => void | Promise<void>) =>
      this.#files.with(path, async file => {
        const found = answerOf(file)
        if (!exchange.gone) await use(found)
      })
    const head = ({ status, type, headers, length }: FileAnswer) =>
      this.head(exchange, status, type, headers, length)
    const location = answer.status === 200 && this.#frontLocation(exchange, path)
    if (location)
      return withOpen(({ type }) => {
        exchange.file = 'front'
        const headers = { ...answer.headers, 'X-Accel-Redirect': location }
        this.#text(exchange, { status: 200, headers }, '', type)
      })
    const small = await this.#smallFiles.get(path)
    if (exchange.gone) return
    if (small) {
      const file = answerOf(small.file)
      exchange.file = file.length
      const bytes = small.bytes.subarray(file.start, file.start + file.length)
      return this.#text(exchange, file, bytes, file.type)
    }
    if (headOnly)
      return withOpen(file => {
        head(file)
        outgoing.end()
      })
    // Opened after a slot is free: refused and waiting requests cost no descriptor.
    await this.#downloads.run(exchange, stream =>
      withOpen(async file => {
        exchange.file = file.length
        head(file)
        this.#cutWhenStalled(exchange)
        await stream(file)
        // Before the file is closed: a client that has all of it may hang up at once.
        outgoing.end()
      })
    )
  }

  /** Returns the location of a file for a front server, which sends it itself; undefined without one. */
  #frontLocation({ incoming: { headers, socket } }: Exchange<C>, path: string): string | undefined {
    const { frontFiles, isFront } = this.o
    // Local programs send no X-Forwarded-For: they do not come through the front server.
    if (!frontFiles || headers['x-forwarded-for'] === undefined) return undefined
    const isSent = socket.remoteAddress !== undefined && isFront(socket.remoteAddress)
    return isSent ? frontLocation(frontFiles, path) : undefined
  }

  /** node:http cuts the connection when there is no 'timeout' listener, and resets the time afterwards. */
  #cutWhenStalled({ incoming }: Exchange<C>): void {
    incoming.socket.setTimeout?.(this.o.stallMs)
  }
}

/** Handlers are typed, but their answers may be built from data. No 3xx is ever sent (rules 2.5). */
function checkAnswer(answer: Answer | null | undefined): asserts answer is Answer {
  const { status, text, json, file } = answer ?? {}
  const wrong = (what: string) => new TypeError(`a handler returned ${what}`)
  if (!Number.isInteger(status) || !/^[245]\d\d$/.test(String(status)))
    throw wrong(`the status ${String(status)}`)
  if (text !== undefined && typeof text !== 'string') throw wrong('a text that is no string')
  if (json !== undefined && typeof (json as Iterable<string> | null)?.[Symbol.iterator] !== 'function')
    throw wrong('JSON that is no text')
  if (file !== undefined && !isAbsolute(file)) throw wrong('a file without an absolute path')
}

function textOf({ text, json, body }: Answer): string | undefined {
  if (text !== undefined) return text
  if (json === undefined && body === undefined) return undefined
  const given = json ?? (JSON.stringify(body) as string | undefined)
  if (given === undefined) throw new TypeError('a handler returned a body that is not JSON')
  return `${given}\n`
}

/** The answer as it is compressed: another representation has another entity tag. */
function gzipped({ etag, headers, ...answer }: Answer): Answer {
  const coded = { ...headers, 'Content-Encoding': 'gzip', Vary: 'Accept-Encoding' }
  return { ...answer, headers: etag ? { ...coded, ETag: etag.header('.gzip') } : coded }
}

const headersOf = ({ headers, etag }: Pick<Answer, 'headers' | 'etag'>) =>
  etag ? { ...headers, ETag: etag.header() } : headers

/** A stream that compresses into the answer; `done` resolves when all of it was written. */
function compressInto(exchange: Exchange): { zip: Gzip; done: Promise<void> } {
  const zip = createGzip()
  zip.on('data', (chunk: Buffer) => {
    exchange.bytes += chunk.length
  })
  const done = pipeline(zip, exchange.outgoing)
  // The writer awaits `done` at the end.
  done.catch(() => undefined)
  return { zip, done }
}

async function drained({ outgoing }: Exchange, sink: Writable): Promise<void> {
  const stop = new AbortController()
  const { signal } = stop
  try {
    await Promise.race([once(sink, 'drain', { signal }), once(outgoing, 'close', { signal })])
  } finally {
    stop.abort()
  }
}
