import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'
import type { EtcdServer } from './etcd.js'

/** A request to the gateway of etcd. */
export interface Asked {
  readonly path: string
  /** What a transaction would write: key → text, undefined where it deletes the key. */
  readonly writes: Readonly<Record<string, string | undefined>>
}

interface Stands {
  /** Comes before a request; gives what etcd is to have refused it with. */
  readonly before?: (asked: Asked) => unknown
  /** Comes before its answer. */
  readonly after?: (asked: Asked) => unknown
  /** Comes before each part of its answer. */
  readonly part?: (asked: Asked) => unknown
}

/** Given by `before`: etcd is not asked, and this is answered. */
export class EtcdRefusal {
  constructor(readonly body: object) {}
}

/** A way to etcd on which somebody stands; a throw cuts it. Gives its URL. */
export async function watched(t: Test, etcd: EtcdServer, stands: Stands): Promise<string> {
  const server = createServer((request, response) => {
    const path = request.url ?? ''
    const passOn = async () => {
      const body = await buffer(request)
      const asked = { path, writes: path === '/v3/kv/txn' ? writesIn(body) : {} }
      const refusal = await stands.before?.(asked)
      if (refusal instanceof EtcdRefusal) {
        response.writeHead(400).end(JSON.stringify(refusal.body))
        return
      }
      const answer = await fetch(etcd.url + path, { method: 'POST', body })
      await stands.after?.(asked)
      response.writeHead(answer.status)
      for await (const part of answer.body ?? []) {
        await stands.part?.(asked)
        response.write(part)
      }
      response.end()
    }
    passOn().catch(() => request.socket.destroy())
  }).listen(0)
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** What a transaction of the gateway writes. */
function writesIn(body: Buffer): Record<string, string | undefined> {
  const { success = [] } = JSON.parse(body.toString()) as {
    success?: { request_put?: { key: string; value: string }; request_delete_range?: { key: string } }[]
  }
  return Object.fromEntries(
    success.flatMap(({ request_put: put, request_delete_range: deleted }) => [
      ...(put ? [[atob(put.key), atob(put.value)]] : []),
      ...(deleted ? [[atob(deleted.key), undefined]] : [])
    ])
  )
}
