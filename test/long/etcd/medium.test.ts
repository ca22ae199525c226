import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { EtcdMedium } from '../../../lib/store/etcd/medium.js'
import type { Medium } from '../../../lib/store/medium.js'
import { type Place, testMedium } from '../../store/medium-suite.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')

/** Stands before etcd, and loses requests or their answers as it is told. */
class Wire {
  readonly #server: Server
  readonly #etcd: EtcdServer
  /** What becomes of a request to this path. */
  readonly #fate: (path: string) => 'well' | 'before' | 'after'
  #isCut = false

  constructor(etcd: EtcdServer, fate: (path: string) => 'well' | 'before' | 'after') {
    this.#server = createServer((request, response) => {
      // Who asked has gone away, or etcd has.
      this.#answer(request, response).catch(() => request.socket.destroy())
    })
    this.#fate = fate
    this.#etcd = etcd
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request)
    const what = this.#isCut ? 'before' : this.#fate(request.url ?? '')
    if (what === 'before') throw new Error('lost')
    const answer = await fetch(this.#etcd.url + request.url, { method: 'POST', body })
    const text = await answer.text()
    if (what === 'after' || this.#isCut) throw new Error('lost')
    response.writeHead(answer.status).end(text)
  }

  listen(): this {
    this.#server.listen(0) // without a host: it listens at once
    return this
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  cut(): void {
    this.#isCut = true
    this.#server.closeAllConnections()
  }

  close(): void {
    this.cut()
    this.#server.close()
  }
}

class Cluster implements Place {
  readonly words: readonly string[]
  readonly #etcd: EtcdServer
  readonly #prefix: string
  readonly #wires = new Map<Medium, Wire>()
  #left = Number.POSITIVE_INFINITY
  #isLate = false
  failures = 0

  constructor(t: Test, etcd: EtcdServer, prefix: string) {
    this.#etcd = etcd
    this.#prefix = prefix
    this.words = ['etcd', etcd.url, prefix]
    t.teardown(() => {
      for (const wire of this.#wires.values()) wire.close()
    })
  }

  medium(): Medium {
    const wire = new Wire(this.#etcd, path => this.#fate(path)).listen()
    const medium = new EtcdMedium({
      endpoints: [wire.url],
      prefix: this.#prefix,
      ttlSeconds: 2,
      patienceMs: 200
    })
    this.#wires.set(medium, wire)
    return medium
  }

  /** Its lease is ended as if it had run out, so that the test need not wait for that. */
  async abandon(medium: Medium): Promise<void> {
    this.#wires.get(medium)?.cut()
    const { kvs = [] } = await this.#etcd.ask('kv/range', { key: base64(`${this.#prefix}writer`) })
    for (const { lease } of kvs) await this.#etcd.ask('lease/revoke', { ID: lease })
  }

  async put(type: string, name: string, text: string): Promise<void> {
    const key = `${this.#prefix}objects/${type}/${name}`
    await this.#etcd.ask('kv/put', { key: base64(key), value: base64(text) })
  }

  failAfter(writes: number, late: boolean): void {
    this.#left = writes
    this.#isLate = late
    this.failures = 0
  }

  heal(): void {
    this.#left = Number.POSITIVE_INFINITY
  }

  #fate(path: string): 'well' | 'before' | 'after' {
    if (path.endsWith('/txn') && this.#left-- > 0) return 'well'
    if (!path.endsWith('/txn') && this.#left > 0) return 'well'
    this.failures++
    return this.#isLate ? 'after' : 'before'
  }
}

const etcd = await startEtcd(t)
let places = 0
testMedium({ place: async t => new Cluster(t, etcd, `/test/${places++}/`), kills: 6 })
