import { isObject, type JsonObject, type JsonValue, within } from '../../base/json.js'
import { oneLine, shown } from '../../base/log.js'
import { type Client, RefusedError, TooLongError, UnclearError } from './client.js'

/** A key with its value. */
export interface Pair {
  readonly key: string
  readonly value: Buffer
  /** The revision that created the key; it changes when the key is removed and created again. */
  readonly created: string
  /** The revision of its last change. */
  readonly modified: string
  /** Its lease, '0' without one. */
  readonly lease: string
}

/** Time limit of a transaction, all hedged requests included. */
const LIMIT_MS = 2000
const LIST_LIMIT_MS = 10_000
/** Keys per request; fewer if their values are long. */
const MOST_KEYS = 1000
/** Bounds of a whole list: a start reads the whole store. */
const WHOLE_LIST = { bytes: 1024 ** 3, ms: 120_000 }

/** Encodes a key or a value for the gateway. */
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** The `range_end` of a prefix that ends in a slash. */
const endOf = (prefix: string) => `${prefix.slice(0, -1)}0`

/** Sets a key, bound to `lease` if given. */
export const put = (key: string, value: string, lease?: string): JsonObject => ({
  request_put: { key: base64(key), value: base64(value), ...(lease === undefined ? {} : { lease }) }
})
/** Reads a key, at `revision` if given. The outcome's `found` has its pair. */
export const get = (key: string, revision?: string): JsonObject => ({
  request_range: { key: base64(key), ...(revision === undefined ? {} : { revision }) }
})
/** Removes a key. */
export const remove = (key: string): JsonObject => ({ request_delete_range: { key: base64(key) } })
/** Removes all keys below a prefix that ends in a slash. */
export const removeAll = (prefix: string): JsonObject => ({
  request_delete_range: { key: base64(prefix), range_end: base64(endOf(prefix)) }
})

const condition = (key: string, what: JsonObject): JsonObject => ({ key: base64(key), ...what })

/** The key was created at this revision and exists since; '0': it does not exist. */
export const isCreatedAt = (key: string, revision: string) =>
  condition(key, { target: 'CREATE', create_revision: revision })
/** The key was last changed at this revision or later. */
export const isSince = (key: string, revision: string) =>
  condition(key, { target: 'MOD', result: 'GREATER', mod_revision: String(BigInt(revision) - 1n) })
/** The key was last changed at this revision. */
export const isModifiedAt = (key: string, revision: string) =>
  condition(key, { target: 'MOD', mod_revision: revision })
/** The key has this value; undefined: it does not exist. */
export const hasValue = (key: string, value: string | undefined) =>
  value === undefined ? isCreatedAt(key, '0') : condition(key, { target: 'VALUE', value: base64(value) })

/** Result of a transaction: whether its conditions held, and what each `get` of the branch taken found. */
export interface Outcome {
  readonly succeeded: boolean
  readonly found: readonly (Pair | undefined)[]
  /** The revision of etcd after the transaction. */
  readonly revision: string
}

/**
 * Runs one transaction: `success` if every condition holds, otherwise `failure`. It may be carried out more
 * than once (`Client.hedged`), so it has to be idempotent or have conditions that hold only once. Throws what
 * `Client.hedged` throws, and UnclearError for a malformed answer.
 */
export async function transact(
  client: Client,
  compare: readonly JsonObject[],
  success: readonly JsonObject[],
  failure: readonly JsonObject[] = [],
  limitMs = LIMIT_MS
): Promise<Outcome> {
  const answer = await client.hedged(
    'kv/txn',
    { compare: [...compare], success: [...success], failure: [...failure] },
    limitMs
  )
  const revision = decimal(within(answer, 'header').revision) ?? '0'
  const succeeded = answer.succeeded === true
  const asked = succeeded ? success : failure
  const responses = listIn(answer.responses)
  const strange = (what: string) => new UnclearError(`etcd at ${client.endpointsText}: ${what}`)
  if (responses?.length !== asked.length) throw strange('its answer is not to what it was asked')
  const found = asked.flatMap(({ request_range: range }, i) => {
    if (!isObject(range)) return []
    const inside = within(responses[i]).response_range
    const pairs = isObject(inside) ? pairsIn(inside, strange) : undefined
    const wanted = Buffer.from(String(range.key), 'base64').toString()
    if (!pairs || pairs.length > 1 || (pairs[0] && pairs[0].key !== wanted))
      throw strange(`its answer is not to what it was asked, ${wanted}`)
    return [pairs[0]]
  })
  return { succeeded, found, revision }
}

/** Reads keys, at one revision. Throws as `transact`. */
export async function read(client: Client, ...keys: string[]): Promise<Outcome['found']> {
  const gets = keys.map(key => get(key))
  return (await transact(client, [], gets)).found
}

/**
 * Lists every key below a prefix that ends in a slash, at one revision, in pages. Throws what `Client.ask`
 * throws, RefusedError for keys out of order or malformed, or more than `most`, and the reason of `signal`.
 */
export async function list(
  client: Client,
  prefix: string,
  most = WHOLE_LIST,
  signal?: AbortSignal
): Promise<{ pairs: Pair[]; revision: string }> {
  const pairs: Pair[] = []
  const strange = (what: string) => new RefusedError(`etcd at ${client.endpointsText}: ${what}`)
  const giveUp = performance.now() + most.ms
  const end = endOf(prefix)
  let at: string | undefined
  let limit = MOST_KEYS
  let unanswered = 0
  let size = 0
  for (let from = prefix; ; ) {
    const question = {
      key: base64(from),
      range_end: base64(end),
      limit,
      ...(at ? { revision: at } : {})
    }
    let answer: JsonObject
    try {
      answer = await client.ask('kv/range', question, LIST_LIMIT_MS, signal)
    } catch (error) {
      signal?.throwIfAborted()
      // The next request goes to another endpoint.
      if (error instanceof UnclearError && ++unanswered < client.endpointCount) continue
      if (!(error instanceof TooLongError) || limit === 1) throw error
      limit = Math.ceil(limit / 8)
      continue
    }
    at ??= decimal(within(answer, 'header').revision)
    if (at === undefined) throw strange('its answer has no revision')
    const some = pairsIn(answer, strange)
    if (some.length > limit) throw strange(`it gives ${some.length} keys, and was asked for ${limit}`)
    for (const pair of some) {
      const { key } = pair
      if (!isBefore(key, end) || isBefore(key, from))
        throw strange(
          `the key ${oneLine(key, 300)} is out of order, ` +
            `or not below ${prefix}: what answers is not etcd, or is damaged`
        )
      from = `${key}\0`
      size += key.length + pair.value.length
      pairs.push(pair)
    }
    if (size > most.bytes)
      throw strange(
        `below ${prefix} are more than ${most.bytes} bytes: more than svcd reads; is it the right prefix?`
      )
    if (answer.more !== true) return { pairs, revision: at }
    if (some.length === 0) throw strange(`it tells of more keys below ${prefix}, and gives none`)
    if (performance.now() > giveUp)
      throw strange(
        `the keys below ${prefix} were not read within ${most.ms / 1000} s; look how it is ` +
          `(${client.etcdctl('check perf', true)})`
      )
  }
}

/** Compares as etcd does: by bytes. */
const isBefore = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b)) < 0

/** A list of an answer; the gateway omits empty ones. Undefined for anything else. */
const listIn = (value: JsonValue | undefined): JsonValue[] | undefined =>
  value === undefined ? [] : Array.isArray(value) ? value : undefined

/** A 64-bit integer as the gateway writes it; undefined for anything else. */
const decimal = (value: JsonValue | undefined): string | undefined =>
  typeof value === 'string' && /^\d{1,19}$/.test(value) ? value : undefined

/** The pairs of an answer. Throws `strange(reason)`, which names the key, for malformed ones. */
function pairsIn({ kvs }: JsonObject, strange: (what: string) => Error): Pair[] {
  const all = listIn(kvs)
  if (!all) throw strange('its answer has no list of keys')
  return all.map(each => {
    const pair = pairIn(each, strange)
    // Only removed keys have '0', and no list has these.
    if (pair.created === '0') throw strange(`what it tells of ${oneLine(pair.key, 300)} is damaged`)
    return pair
  })
}

/** Parses a pair. A removed key has no value, and `created` '0'. Throws as `pairsIn` does. */
function pairIn(json: JsonValue, strange: (what: string) => Error): Pair {
  const { key, value = '', create_revision = '0', mod_revision, lease = '0' } = isObject(json) ? json : {}
  const name = bytesOf(key)
  const told = name ? oneLine(shown(name), 300) : 'a key'
  const text = name?.toString()
  if (!name?.length || text === undefined || !name.equals(Buffer.from(text)))
    throw strange(`${told} is no key in UTF-8; remove it (etcdctl del)`)
  const bytes = bytesOf(value)
  const [created, modified, goesWith] = [decimal(create_revision), decimal(mod_revision), decimal(lease)]
  if (!bytes || created === undefined || modified === undefined || goesWith === undefined)
    throw strange(`what it tells of ${told} is damaged`)
  return { key: text, value: bytes, created, modified, lease: goesWith }
}

/** Decodes base64; undefined unless it is in canonical form. */
function bytesOf(value: JsonValue | undefined): Buffer | undefined {
  if (typeof value !== 'string') return undefined
  const bytes = Buffer.from(value, 'base64')
  return bytes.toString('base64') === value ? bytes : undefined
}

/** The changes of one transaction to the watched keys. */
export interface WatchedTransaction {
  readonly revision: string
  /** The new value of each key; undefined: removed. */
  readonly keys: readonly { readonly key: string; readonly value: Buffer | undefined }[]
}

/** etcd has compacted the revision to start from: all keys have to be listed again. */
export class CompactedError extends Error {
  override readonly name = 'CompactedError'
}

/**
 * Watches all keys below a prefix that ends in a slash: yields each transaction from a revision on, whole, in
 * order and once. Ends by throwing: CompactedError, UnclearError if the stream breaks, or the signal's
 * reason.
 */
export async function* watchTransactions(
  client: Client,
  prefix: string,
  from: string,
  signal: AbortSignal
): AsyncGenerator<WatchedTransaction, never> {
  const question = {
    create_request: { key: base64(prefix), range_end: base64(endOf(prefix)), start_revision: from }
  }
  const strange = (what: string) => new UnclearError(`etcd at ${client.endpointsText}: ${what}`)
  let last = BigInt(from) - 1n
  for await (const { result } of client.stream('watch', question, signal)) {
    if (!isObject(result)) throw strange('it ended the watch')
    const { canceled, compact_revision: compacted, cancel_reason: reason } = result
    if (compacted !== undefined && compacted !== '0')
      throw new CompactedError(
        `etcd at ${client.endpointsText}: what happened since revision ${from} is compacted`
      )
    if (canceled) throw strange(`it ended the watch: ${oneLine(String(reason), 300)}`)
    for (const moment of transactionsIn(result, strange)) {
      if (BigInt(moment.revision) <= last)
        throw strange(`it tells of revision ${moment.revision} after ${last}`)
      last = BigInt(moment.revision)
      yield moment
    }
  }
  throw strange('it ended the watch')
}

function transactionsIn({ events }: JsonObject, strange: (what: string) => Error): WatchedTransaction[] {
  const moments: { revision: string; keys: { key: string; value: Buffer | undefined }[] }[] = []
  const all = listIn(events)
  if (!all) throw strange('what it tells is no list')
  for (const event of all) {
    const { type = 'PUT', kv = null } = isObject(event) ? event : {}
    const { key, value, modified: revision } = pairIn(kv, strange)
    const each = { key, value: type === 'DELETE' ? undefined : value }
    const moment = moments.at(-1)
    if (moment?.revision === revision) moment.keys.push(each)
    else moments.push({ revision, keys: [each] })
  }
  return moments
}
