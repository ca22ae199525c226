import { isObject } from '../../json.js'
import { type Client, RefusedError } from './client.js'

/** A new lease, by its number. Throws what `Client.ask` throws. */
export async function granted(client: Client, ttlSeconds: number, limitMs: number): Promise<string> {
  const { ID } = await client.ask('lease/grant', { TTL: ttlSeconds }, limitMs)
  if (typeof ID !== 'string' || !/^-?\d{1,19}$/.test(ID))
    throw new RefusedError(`etcd at ${client.where}: a lease without a number`)
  return ID
}

/** Gives a lease its whole time again; false where it has ended. Throws what `Client.hedged` throws. */
export async function isKept(client: Client, lease: string, limitMs: number): Promise<boolean> {
  const { result } = await client.hedged('lease/keepalive', { ID: lease }, limitMs)
  return isObject(result) && Number(result.TTL ?? 0) > 0
}

/** Ends a lease, and takes away what goes with it. Where etcd does not answer, it ends by itself. */
export async function revoke(client: Client, lease: string, limitMs: number): Promise<void> {
  await client.ask('lease/revoke', { ID: lease }, limitMs).catch(() => undefined)
}
