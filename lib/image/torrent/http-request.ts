/** An answer of another server, whole. */
export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly body: Buffer
}

/** The answer of a seeder with 10,000 torrents is smaller. */
const MAX_ANSWER = 32 << 20
const TIME_LIMIT_MS = 10_000

/**
 * Asks a server over http, with POST where there is a body, for 10 s at most. Redirects are not followed.
 * Throws an Error saying in a few words why there is no answer. The caller adds which server it is.
 */
export async function ask(
  url: string,
  signal: AbortSignal,
  request: { readonly headers?: Readonly<Record<string, string>>; readonly body?: string } = {}
): Promise<Answered> {
  const limit = AbortSignal.timeout(TIME_LIMIT_MS)
  try {
    const response = await fetch(url, {
      ...request,
      method: request.body === undefined ? 'GET' : 'POST',
      // Some trackers close a connection although they said that they would keep it.
      headers: { connection: 'close', ...request.headers },
      redirect: 'manual',
      signal: AbortSignal.any([signal, limit])
    })
    return { status: response.status, headers: response.headers, body: await whole(response) }
  } catch (error) {
    signal.throwIfAborted()
    throw new Error(limit.aborted ? `no answer within ${TIME_LIMIT_MS / 1000} s` : reason(error as Error))
  }
}

/** Returns the JSON in an answer; undefined where it is none. */
export function jsonOf<T extends object>({ body }: Answered): T | undefined {
  try {
    return JSON.parse(body.toString())
  } catch {
    return undefined
  }
}

async function whole(response: Response): Promise<Buffer> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of response.body ?? []) {
    size += part.length
    if (size > MAX_ANSWER) throw new Error('the answer is too long')
    parts.push(part)
  }
  return Buffer.concat(parts)
}

/** Returns the message of the cause of fetch's error; of several addresses that of the first. */
function reason(error: Error): string {
  const { cause } = error as { cause?: Error & { errors?: readonly Error[] } }
  const inner = cause?.errors?.[0] ?? cause
  return inner?.message || error.message
}
