import { constants } from 'node:fs'
import { type FileHandle, open, rm } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { jsonObjectOrEmpty } from '../../base/json.js'
import type { Trust } from '../../client/certificates.js'
import { certificateAdvice, type RequestAuth, requestController } from '../../client/controllers.js'
import { type Response, readWhole, TooLongError } from '../../client/request.js'
import type { Hashed } from '../../helper/packer/in-worker.js'

export interface Source {
  readonly name: string
  /** Its origin, http or https. */
  readonly url: string
}

export interface Asking {
  readonly trust: Trust
  readonly proofs: RequestAuth
  /** Whether a controller is still listed. Absent: it is. */
  readonly isThere?: (source: Source) => boolean
  /** Absent: `PACE`. */
  readonly pace?: Pace
}

/** The controller that is asked now, and how. */
export interface Ask {
  readonly source: Source
  readonly asking: Asking
  readonly signal: AbortSignal
}

/** A controller did not give a file. The message names the controller. */
export class SourceError extends Error {
  /** `lacks`: it does not have the file; `wrong`: it gave another file; `fails`: anything else. */
  constructor(
    readonly kind: 'lacks' | 'wrong' | 'fails',
    message: string
  ) {
    super(message)
  }
}

/** A controller sends so slowly that another one should be asked. The part stays. */
export class SlowError extends SourceError {
  /** `bytes`: received in the last `ms` of the pace. */
  constructor(
    message: string,
    readonly bytes: number
  ) {
    super('fails', message)
  }
}

/** The other side may have to wait for a download slot, or to compute the checksum. */
const ANSWER_MS = { file: 60_000, checksum: 600_000 }
const LONGEST_CHECKSUM = 4096
const PACE = {
  /** A controller that sends fewer bytes in `ms` is left. */
  bytes: 256 * 1024,
  ms: 30_000,
  /** The same bound while another controller may be faster. */
  brisk: 30 * 1024 * 1024,
  /** How long the fastest of slow controllers sends before the others are asked again. */
  turnMs: 600_000
}
export type Pace = Partial<typeof PACE>

/** How long a controller may send slowly while others may have the file. Undefined: to the end. */
export type Patience = 'none' | 'turn' | undefined

/** The text of a checksum that is signed. */
export const checksumText = ({ bytes, sha256 }: Hashed) => `${bytes} ${sha256}`

/** Asks a controller for the size and the SHA-256 of a file. Throws SourceError. */
export function checksumAt(ask: Ask, name: string): Promise<Hashed> {
  const { source, asking } = ask
  return answered(ask, `/copies/${name}/checksum`, {}, ANSWER_MS.checksum, async (answer, asked) => {
    if (answer.status !== 200) throw refusal(source, answer)
    const text = (await readWhole(paced(answer.body, ask), LONGEST_CHECKSUM)).toString()
    const { bytes, sha256, proof } = jsonObjectOrEmpty(text)
    if (typeof bytes !== 'number' || typeof sha256 !== 'string' || typeof proof !== 'string')
      throw unproved(source)
    const isOne = Number.isSafeInteger(bytes) && bytes >= 0 && /^[\da-f]{64}$/.test(sha256)
    if (!isOne || !asking.proofs.isAnswerAuthentic(asked, checksumText({ bytes, sha256 }), proof))
      throw unproved(source)
    return { bytes, sha256 }
  })
}

/** Fetches the rest of a part up to `bytes`. What has come stays. Throws SourceError, or the system's. */
export async function download(
  ask: Ask,
  { name, bytes }: { readonly name: string; readonly bytes: number },
  part: string,
  patience?: Patience
): Promise<void> {
  const { source } = ask
  const { O_RDWR, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants
  const handle = await open(part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600)
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw new Error(`${part} is no regular file: move it away`)
    const had = found.size > bytes ? 0 : found.size
    if (found.size > bytes) await handle.truncate(0)
    if (had === bytes) return
    const range = { range: `bytes=${had}-${bytes - 1}` }
    await answered(ask, `/copies/${name}`, range, ANSWER_MS.file, async answer => {
      const begins = beginOf(source, answer, had, bytes)
      if (begins < had) await handle.truncate(0)
      await receive(handle, paced(answer.body, ask, patience), begins, bytes, source)
    })
  } finally {
    const { size } = await handle.stat()
    await handle.close()
    if (size === 0 && bytes > 0) await rm(part, { force: true })
  }
}

/** Returns the offset of an answer's bytes: the requested one, or 0 where the range was ignored. */
function beginOf(source: Source, answer: Response, had: number, bytes: number): number {
  const { status, headers } = answer
  if (headers['content-encoding'] !== undefined)
    throw faultOf(source, 'is reached through something that encodes what it sends')
  if (status === 206 && headers['content-range'] === `bytes ${had}-${bytes - 1}/${bytes}`) return had
  if (status === 200 && headers['content-length'] === String(bytes)) return 0
  if (status === 200 || status === 206 || status === 416)
    throw faultOf(source, 'has a file of that name with another size', 'wrong')
  throw refusal(source, answer)
}

async function receive(
  handle: FileHandle,
  chunks: AsyncIterable<Buffer>,
  begins: number,
  bytes: number,
  source: Source
): Promise<void> {
  let at = begins
  for await (const chunk of chunks) {
    if (at + chunk.length > bytes) throw faultOf(source, 'sends more than it has announced', 'wrong')
    for (let from = 0; from < chunk.length; ) {
      const { bytesWritten } = await handle.write(chunk, from, chunk.length - from, at)
      from += bytesWritten
      at += bytesWritten
    }
  }
  if (at < bytes) throw faultOf(source, 'broke off: it goes on from there')
}

/** Yields the chunks of an answer, as long as they come fast enough. */
async function* paced(body: Readable, { source, asking }: Ask, patience?: Patience): AsyncGenerator<Buffer> {
  const { bytes, ms, brisk, turnMs } = { ...PACE, ...asking.pace }
  const began = performance.now()
  const isOver = () => patience === 'none' || (patience === 'turn' && performance.now() - began >= turnMs)
  let came = 0
  const watch = setInterval(() => {
    if (came < bytes) body.destroy(faultOf(source, 'sends too slowly, or has stopped'))
    else if (came < brisk && isOver())
      body.destroy(new SlowError(faultOf(source, 'sends slowly: others are asked').message, came))
    came = 0
  }, ms)
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      came += chunk.length
      yield chunk
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw error instanceof SourceError
      ? error
      : faultOf(source, `broke off (${code ?? message}): it goes on from there`)
  } finally {
    clearInterval(watch)
  }
}

/** Asks for a path, and reads the answer with `read`. Throws SourceError, and what `read` throws. */
async function answered<T>(
  { source, asking: { trust, proofs, isThere }, signal }: Ask,
  path: string,
  more: Record<string, string>,
  headMs: number,
  read: (answer: Response, asked: Record<string, string>) => Promise<T>
): Promise<T> {
  const asked = proofs.headersFor(path)
  const answer = await requestController({
    ...{ url: source.url, path, headers: { ...asked, ...more }, tls: trust, headMs, signal },
    isThere: isThere && (() => isThere(source))
  }).catch(({ code, message }: NodeJS.ErrnoException) => {
    signal.throwIfAborted()
    const advice = certificateAdvice(code) ?? ELSEWHERE
    throw faultOf(source, `cannot be asked (${code ?? message}): ${advice}`)
  })
  try {
    return await read(answer, asked)
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof TooLongError ? unproved(source) : error
  } finally {
    answer.body.destroy()
  }
}

const faultOf = ({ name, url }: Source, text: string, kind: SourceError['kind'] = 'fails') =>
  new SourceError(kind, `controller ${name} (${url}) ${text}`)

const ELSEWHERE = 'look whether svcd runs there, and whether [store] url or [http] url there leads to it'

const REFUSALS: Readonly<Record<number, string>> = {
  401: 'does not believe that a controller asks (401): its clock, or its token.key, is another one',
  404: 'does not have it, or is of a release that does not give it',
  503: 'cannot give it now (503): it is busy, or the file changed a moment ago'
}

const refusal = (source: Source, { status }: Response) =>
  faultOf(
    source,
    REFUSALS[status] ?? `answers with ${status}: look into its log`,
    status === 404 ? 'lacks' : 'fails'
  )

const unproved = (source: Source) =>
  faultOf(
    source,
    'tells a checksum that the key of the controllers does not prove: something else answers there'
  )
