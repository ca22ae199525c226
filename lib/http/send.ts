import { once } from 'node:events'
import { isAbsolute } from 'node:path'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { createGzip, type Gzip, gzip } from 'node:zlib'
import type { PerTurn } from '../base/concurrency.js'
import { addressBlockOf } from '../base/request-source.js'
import type { ConcurrencyLimit, Slot } from './admission/concurrency-limit.js'
import type { SendBufferBudget } from './admission/send-buffer-budget.js'
import type { Downloads } from './downloads.js'
import type { Exchange } from './exchange.js'
import type { Feeds } from './feeds.js'
import {
  answerWith,
  type FileAnswer,
  type FrontFiles,
  frontLocation,
  type OpenFile,
  type OpenFiles,
  type SmallFileCache
} from './files.js'
import type { Forwards } from './forwards.js'
import { LongText, pauses, reuse } from './long-text.js'
import type { Answer, Feed, Forwarded } from './route.js'

/** Shorter texts are not compressed. */
const LEAST_COMPRESSED = 8192

const zip = promisify<string, Buffer>(gzip)

const framing = new Set(['content-type', 'content-length', 'transfer-encoding', 'connection'])

/** The shared parts of a server that send answers. */
export interface SendContext<C> {
  /** Whether to send `Connection: close`. */
  readonly close: boolean
  /** Cuts the connection when the client has taken nothing for this long. */
  readonly stallMs: number
  /** Files that the sender of this request, a front server, sends itself. */
  frontFilesOf(exchange: Exchange<C>): FrontFiles | undefined
  readonly files: OpenFiles
  readonly smallFiles: SmallFileCache
  readonly downloads: Downloads
  readonly lists: ConcurrencyLimit
  /** Makes one piece of all lists in a turn of the event loop. */
  readonly listPieces: PerTurn
  readonly feeds: Feeds
  /** Requests that another server answers. */
  readonly forwards: Forwards
  /** Whether the caller is still authorized; asked while a feed is sent. */
  isStillAuthorized(exchange: Exchange<C>): Promise<boolean>
  readonly sendBufferBudget: SendBufferBudget
}

/**
 * Writes a handler's answer to the socket. Content-Length is exact, JSON ends in a newline, a 204 has no
 * body, HEAD gets the head alone (rules 1.5, 2.5). Before the first byte it throws or rejects with
 * ServiceError 404, 416 or 503 for a file, and TypeError for an invalid answer; an error after that means
 * that the connection must be cut. Returns a promise only where it has to wait.
 */
export function send<C>(
  exchange: Exchange<C>,
  answer: Answer,
  context: SendContext<C>
): void | Promise<void> {
  checkAnswer(answer)
  if (answer.forwarded !== undefined) return sendForwarded(exchange, answer.forwarded, context)
  if (answer.file !== undefined) return sendFile(exchange, answer, answer.file, context)
  if (answer.feed !== undefined) return sendFeed(exchange, answer, answer.feed, context)
  if (answer.json !== undefined && typeof answer.json !== 'string')
    return sendParts(exchange, answer, answer.json, context)
  if (answer.bytes !== undefined) return sendText(exchange, answer, answer.bytes, answer.type, context)
  const text = textOf(answer)
  if (answer.status === 204 || text === undefined) return sendText(exchange, answer, '', undefined, context)
  const type = answer.type ?? (answer.text === undefined ? 'application/json' : 'text/plain; charset=utf-8')
  return sendWhole(exchange, answer, text, type, context)
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

function textOf(answer: Answer): string | undefined {
  if (answer.text !== undefined) return answer.text
  if (answer.json !== undefined) return `${answer.json}\n`
  if (answer.body === undefined) return undefined
  const text: string | undefined = JSON.stringify(answer.body)
  if (text === undefined) throw new TypeError('a handler returned a body that is not JSON')
  return `${text}\n`
}

/** Sends a text at once, compressed where that is worth it. */
function sendWhole<C>(
  exchange: Exchange<C>,
  answer: Answer,
  text: string,
  type: string,
  context: SendContext<C>
): void | Promise<void> {
  if (!answer.compress || text.length < LEAST_COMPRESSED)
    return sendText(exchange, answer, text, type, context)
  return zip(text).then(zipped => {
    if (!exchange.gone) sendText(exchange, gzipped(answer), zipped, type, context)
  })
}

/** The answer as it is compressed: another representation has another entity tag. */
function gzipped({ etag, headers, ...answer }: Answer): Answer {
  const coded = { ...headers, 'Content-Encoding': 'gzip', Vary: 'Accept-Encoding' }
  return { ...answer, headers: etag ? { ...coded, ETag: etag.header('.gzip') } : coded }
}

const headersOf = ({ headers, etag }: Answer) => (etag ? { ...headers, ETag: etag.header() } : headers)

function sendText<C>(
  exchange: Exchange<C>,
  answer: Answer,
  text: string | Buffer,
  type: string | undefined,
  context: SendContext<C>
): void {
  const length = Buffer.byteLength(text)
  // ASCII: as UTF-8 node:http would copy it to three times its memory, and scan it once more.
  const encoding = typeof text === 'string' && length === text.length ? 'latin1' : 'utf8'
  writeHead(exchange, answer.status, type, headersOf(answer), length, context)
  exchange.bytes = exchange.headOnly ? 0 : length
  // node:http drops the text for HEAD and 204.
  exchange.outgoing.end(text, encoding)
  // The system takes nearly every answer at once.
  if (exchange.incoming.socket.writableLength === 0) return
  cutWhenStalled(exchange, context)
  context.sendBufferBudget.add(exchange, length)
  exchange.outgoing.once('close', () => context.sendBufferBudget.remove(exchange))
}

/** Sends a text that may be long, a piece in each turn of the event loop. */
async function sendParts<C>(
  exchange: Exchange<C>,
  answer: Answer,
  parts: Iterable<string>,
  context: SendContext<C>
): Promise<void> {
  await context.lists.run(exchange, async slot => {
    const text = new LongText(parts)
    try {
      await sendLongText(exchange, answer, text, context, slot)
    } finally {
      text.forget()
    }
  })
}

async function sendLongText<C>(
  exchange: Exchange<C>,
  answer: Answer,
  text: LongText,
  context: SendContext<C>,
  slot: Slot
): Promise<void> {
  const type = answer.type ?? 'application/json'
  // Client addresses take turns.
  const inTurn = <R>(make: () => R) => context.listPieces.run(addressBlockOf(exchange.address), make)
  const making = answer.etag && pauses(answer.etag.making())
  while (making && !exchange.gone && !(await inTurn(() => making.next())).done);
  const measured = text.measuring()
  const first = (await inTurn(() => measured.next())).value
  if ((await inTurn(() => measured.next())).done)
    return sendWhole(exchange, answer, first?.parts.join('') ?? '', type, context)
  // On a busy machine a short text comes in pieces too.
  const compress = answer.compress && !exchange.headOnly && text.bytes >= LEAST_COMPRESSED
  // A compressed answer has no length in its head.
  while (!compress && !exchange.gone && !(await inTurn(() => measured.next())).done);
  if (exchange.gone) return
  const headers = headersOf(compress ? gzipped(answer) : answer)
  writeHead(exchange, answer.status, type, headers, compress ? undefined : text.bytes, context)
  if (exchange.headOnly) return void exchange.outgoing.end()
  cutWhenStalled(exchange, context)
  const compressing = compress ? compressInto(exchange) : undefined
  const sink = compressing?.zip ?? exchange.outgoing
  const sent = text.sending()
  for (let next = await inTurn(() => sent.next()); !next.done; next = await inTurn(() => sent.next())) {
    if (exchange.gone) return
    const { length } = next.value
    if (!compress) exchange.bytes += length
    await sendPiece(exchange, sink, next.value, context, slot)
  }
  sink.end()
  await compressing?.done
}

/** Resolves when more may be written. */
async function sendPiece<C>(
  exchange: Exchange<C>,
  sink: Writable,
  bytes: Buffer,
  { sendBufferBudget }: SendContext<C>,
  slot: Slot
): Promise<void> {
  if (bytes.length === 0 || sink.write(bytes, error => !error && reuse(bytes))) return
  slot.stalledSinceMs = performance.now()
  sendBufferBudget.add(exchange, bytes.length)
  await drained(exchange, sink)
  sendBufferBudget.remove(exchange)
  slot.stalledSinceMs = undefined
}

/** A stream that compresses into the answer; `done` resolves when all of it was written. */
function compressInto<C>(exchange: Exchange<C>): { zip: Gzip; done: Promise<void> } {
  const zip = createGzip()
  zip.on('data', (chunk: Buffer) => {
    exchange.bytes += chunk.length
  })
  const done = pipeline(zip, exchange.outgoing)
  // The writer awaits `done` at the end.
  done.catch(() => undefined)
  return { zip, done }
}

async function sendFeed<C>(
  exchange: Exchange<C>,
  answer: Answer,
  feed: Feed,
  context: SendContext<C>
): Promise<void> {
  const head = () => writeHead(exchange, answer.status, answer.type, answer.headers, undefined, context)
  if (exchange.headOnly) {
    head()
    return void exchange.outgoing.end()
  }
  await context.feeds.run(exchange, {
    feed,
    begin: () => {
      head()
      cutWhenStalled(exchange, context)
    },
    isStillAuthorized: () => context.isStillAuthorized(exchange),
    subscriber: answer.subscriber
  })
}

async function sendForwarded<C>(
  exchange: Exchange<C>,
  forwarded: Forwarded,
  context: SendContext<C>
): Promise<void> {
  await context.forwards.run(exchange, forwarded, (status, headers, length) => {
    writeHead(exchange, status, headers['content-type'], headers, length, context)
    cutWhenStalled(exchange, context)
  })
}

async function drained<C>({ outgoing }: Exchange<C>, sink: Writable): Promise<void> {
  const stop = new AbortController()
  const { signal } = stop
  try {
    await Promise.race([once(sink, 'drain', { signal }), once(outgoing, 'close', { signal })])
  } finally {
    stop.abort()
  }
}

async function sendFile<C>(
  exchange: Exchange<C>,
  answer: Answer,
  path: string,
  context: SendContext<C>
): Promise<void> {
  const { headOnly, outgoing } = exchange
  const frontFiles = context.frontFilesOf(exchange)
  const location = answer.status === 200 && frontFiles && frontLocation(frontFiles, path)
  if (location)
    return withOpen(exchange, answer, path, context, async file => {
      exchange.file = 'front'
      const headers = { ...answer.headers, 'X-Accel-Redirect': location }
      await sendText(exchange, { status: 200, headers }, '', answer.type ?? file.type, context)
    })
  const small = await context.smallFiles.get(path)
  if (exchange.gone) return
  if (small) {
    const file = describe(exchange, answer, small.file)
    exchange.file = file.length
    const bytes = small.bytes.subarray(file.start, file.start + file.length)
    return sendText(exchange, headOf(answer, file), bytes, answer.type ?? file.type, context)
  }
  const head = (file: FileAnswer) => {
    const { status, headers } = headOf(answer, file)
    writeHead(exchange, status, answer.type ?? file.type, headers, file.length, context)
  }
  if (headOnly)
    return withOpen(exchange, answer, path, context, file => {
      head(file)
      outgoing.end()
    })
  // Opened after a slot is free: refused and waiting requests cost no descriptor.
  await context.downloads.run(exchange, stream =>
    withOpen(exchange, answer, path, context, async file => {
      exchange.file = file.length
      head(file)
      cutWhenStalled(exchange, context)
      await stream(file)
      // Before the file is closed: a client that has all of it may hang up at once.
      outgoing.end()
    })
  )
}

/** The head for a file, and for the part that was asked for. */
const describe = <C, F extends Pick<OpenFile, 'path' | 'size' | 'etag'>>(
  { headOnly, incoming }: Exchange<C>,
  { status }: Answer,
  file: F
) => answerWith(file, incoming.headers, status === 200 && !headOnly)

const headOf = (answer: Answer, file: FileAnswer<unknown>) => ({
  status: answer.status === 200 ? file.status : answer.status,
  headers: { ...file.headers, ...answer.headers }
})

/** Runs `send` with the open file, unless the client has left. */
function withOpen<C>(
  exchange: Exchange<C>,
  asked: Answer,
  path: string,
  { files }: SendContext<C>,
  send: (file: FileAnswer) => void | Promise<void>
): Promise<void> {
  return files.with(path, async file => {
    const answer = describe(exchange, asked, file)
    if (!exchange.gone) await send(answer)
  })
}

/** Writes the head. `headers` that frame the message are ignored. Without `length` the body is chunked. */
export function writeHead<C>(
  exchange: Exchange<C>,
  status: number,
  type: string | undefined,
  headers: Readonly<Record<string, string>> | undefined,
  length: number | undefined,
  { close }: Pick<SendContext<C>, 'close'>
): void {
  const all: Record<string, string | number> = {}
  if (type !== undefined) all['Content-Type'] = type
  if (status !== 204 && length !== undefined) all['Content-Length'] = length
  if (close) all.Connection = 'close'
  for (const name in headers) if (!framing.has(name.toLowerCase())) all[name] = headers[name] as string
  exchange.outgoing.writeHead(status, all)
  exchange.status = status
}

/** node:http cuts the connection when there is no 'timeout' listener, and resets the time afterwards. */
function cutWhenStalled<C>({ incoming }: Exchange<C>, { stallMs }: SendContext<C>): void {
  incoming.socket.setTimeout?.(stallMs)
}
