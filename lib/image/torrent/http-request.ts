/** An answer of another server, whole. */
export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly body: Buffer
}

/** A seeder with 10,000 torrents answers with less. */
const MAX_ANSWER = 32 << 20
const TIME_LIMIT_MS = 10_000

/**
 * Asks a server over http (with a body: POST), for 10 s at most; redirects are not followed.
 * @throws Error saying in a few words why there is no answer; the caller says whose.
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
      // Some trackers close a connection that was said to be kept.
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

/** fetch says "fetch failed"; what failed is its cause, or one per address in that. */
function reason(error: Error): string {
  const { cause } = error as { cause?: Error & { errors?: readonly Error[] } }
  const inner = cause?.errors?.[0] ?? cause
  return inner?.message || error.message
}
