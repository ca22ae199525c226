import { isObject, type JsonObject } from '../../base/json.js'
import { oneLine } from '../../base/log.js'
import { type Client, UnclearError } from './client.js'
import { base64, endOf, listIn, pairIn } from './kv.js'

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
