import { isObject, type JsonObject } from '../../json.js'
import { type Client, TooLongError, UnclearError } from './client.js'

/** A key with what it holds. */
export interface Pair {
  readonly key: string
  readonly value: string
  /** The revision at which the key was made: another one once it was gone. */
  readonly created: string
  /** The lease that it goes with, '0' without one. */
  readonly lease: string
}

const LIST_LIMIT_MS = 10_000
/** So many keys are asked for at once, and fewer where their values are long. */
const MOST_KEYS = 1000

const base64 = (text: string) => Buffer.from(text).toString('base64')
const text = (value: unknown) => (typeof value === 'string' ? Buffer.from(value, 'base64').toString() : '')

/** The end of the range of all keys that begin with a prefix, for prefixes that end in a slash. */
const endOf = (prefix: string) => `${prefix.slice(0, -1)}0`

/** Gives a key this value, and a lease that it goes with. */
export const put = (key: string, value: string, lease?: string): JsonObject => ({
  request_put: { key: base64(key), value: base64(value), ...(lease === undefined ? {} : { lease }) }
})
/** Asks for a key: its pair is one of what the outcome has found. */
export const get = (key: string): JsonObject => ({ request_range: { key: base64(key) } })
/** Removes a key. */
export const remove = (key: string): JsonObject => ({ request_delete_range: { key: base64(key) } })
/** Removes all keys below a prefix that ends in a slash. */
export const removeAll = (prefix: string): JsonObject => ({
  request_delete_range: { key: base64(prefix), range_end: base64(endOf(prefix)) }
})
/** The key was made at this revision, and was there ever since; '0': it is not there. */
export const isCreatedAt = (key: string, revision: string): JsonObject => ({
  target: 'CREATE',
  key: base64(key),
  create_revision: revision
})
/** The key holds this; undefined: it is not there. */
export const holds = (key: string, value: string | undefined): JsonObject =>
  value === undefined ? isCreatedAt(key, '0') : { target: 'VALUE', key: base64(key), value: base64(value) }

/** What came of a transaction: whether its conditions held, and what each `get` of the branch that was taken has found. */
export interface Outcome {
  readonly succeeded: boolean
  readonly found: readonly (Pair | undefined)[]
}

/** One transaction: all of `success` where every condition holds, otherwise `failure`. Throws what `Client.ask` throws. */
export async function transact(
  client: Client,
  compare: readonly JsonObject[],
  success: readonly JsonObject[],
  failure: readonly JsonObject[],
  limitMs: number
): Promise<Outcome> {
  const answer = await client.ask(
    'kv/txn',
    { compare: [...compare], success: [...success], failure: [...failure] },
    limitMs
  )
  const responses = Array.isArray(answer.responses) ? answer.responses : []
  const found = responses.flatMap((response: unknown) => {
    const range = isObject(response) ? response.response_range : undefined
    return isObject(range) ? [pairsIn(range)[0]] : []
  })
  return { succeeded: answer.succeeded === true, found }
}

/** Every key below a prefix that ends in a slash, at one revision (absent: the newest), a part at a time. */
export async function list(
  client: Client,
  prefix: string,
  revision?: string
): Promise<{ pairs: Pair[]; revision: string }> {
  const pairs: Pair[] = []
  let at = revision
  let limit = MOST_KEYS
  for (let from = prefix; ; ) {
    const question = {
      key: base64(from),
      range_end: base64(endOf(prefix)),
      limit,
      ...(at ? { revision: at } : {})
    }
    let answer: JsonObject
    try {
      answer = await client.ask('kv/range', question, LIST_LIMIT_MS)
    } catch (error) {
      if (!(error instanceof TooLongError) || limit === 1) throw error
      limit = Math.ceil(limit / 8)
      continue
    }
    const { header } = answer
    if (!isObject(header) || typeof header.revision !== 'string')
      throw new UnclearError(`etcd at ${client.where}: an answer without a revision`)
    at ??= header.revision
    const some = pairsIn(answer)
    for (const pair of some) pairs.push(pair)
    const last = some.at(-1)
    if (answer.more !== true || !last) return { pairs, revision: at }
    from = `${last.key}\0`
  }
}

function pairsIn({ kvs }: JsonObject): Pair[] {
  return (Array.isArray(kvs) ? kvs : []).filter(isObject).map(({ key, value, create_revision, lease }) => ({
    key: text(key),
    value: text(value),
    created: String(create_revision ?? '0'),
    lease: String(lease ?? '0')
  }))
}
