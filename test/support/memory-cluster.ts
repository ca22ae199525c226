import type { Test } from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import type { ServiceError } from '../../lib/base/errors.js'
import type { JsonValue } from '../../lib/base/json.js'
import type { ClusterIndex } from '../../lib/model/cluster-index.js'
import type { Docs, TypeName } from '../../lib/model/docs.js'
import { type Actor, type ChangeKind, Model } from '../../lib/model/model.js'
import { readObject } from '../../lib/model/request.js'
import { SecretBox } from '../../lib/model/secret-box.js'
import type { ClusterSettings, NamedController, Tx } from '../../lib/model/stored.js'
import { createIndex, kinds, objectTypes } from '../../lib/model/types.js'
import { State, Transaction } from '../../lib/store/state.js'
import type { Change } from '../../lib/store/types.js'

/** `<type>/<name>` → what the object sets, without its name. */
export type Objects = Readonly<Record<string, object>>

export const settings: ClusterSettings = {
  provision_method: 'torrent',
  provision_fallback: 'http',
  ntp_server: '',
  debug: false,
  technical_contacts: '',
  variables: {},
  controller: { name: 'controller', address: '10.141.255.254' },
  servesDns: false,
  otherControllers: [],
  urlAddresses: [],
  imageDirectory: '/images'
}

export const admin: Actor = { who: 'user admin', from: '127.0.0.1', mayTakeAddresses: true }

/** A model without a disk: the store's states and transactions in memory, durable at once. */
export class MemoryCluster {
  readonly #state = new State<Docs, ClusterIndex>(Object.keys(kinds), createIndex())
  readonly #kinds = new Map(Object.entries(kinds))
  readonly audited: { readonly kind: ChangeKind; readonly changes: readonly Change[] }[] = []
  /** How many changes were made in steps. */
  inSteps = 0
  readonly model: Model

  constructor(objects: Objects = {}, controllers?: readonly NamedController[]) {
    for (const [path, fields] of Object.entries(objects)) {
      const [type = '', name = ''] = path.split('/')
      this.#state.set(type, name, this.#kinds.get(type)?.decode(name, { name, ...fields }))
    }
    this.model = new Model({
      store: {
        current: this.#state,
        change: fn => this.#change(fn),
        changeInSteps: fn => {
          this.inSteps++
          return this.#change(tx => runSync(fn(tx)))
        }
      },
      ini: settings,
      controllers: () => controllers,
      now: () => 1_000,
      box: new SecretBox(new Uint8Array(32)),
      audit: async (_, changes, kind) => void this.audited.push({ kind, changes })
    })
  }

  async #change<R>(fn: (tx: Tx) => R): Promise<R> {
    const tx = new Transaction<Docs, ClusterIndex>(this.#state)
    try {
      return fn(tx)
    } catch (error) {
      tx.undo()
      throw error
    }
  }

  /** All objects as they are now. */
  get objects(): Objects {
    const all: Record<string, object> = {}
    for (const type of Object.keys(kinds) as (keyof Docs)[])
      for (const key of this.#state.names(type)) {
        const { name: _, ...fields } = this.#state.get(type, key) as { readonly name: string }
        all[`${type}/${key}`] = fields
      }
    return all
  }

  /** What a request does: `post` and `clone` with a body, `delete` without, the path as in `objects`. */
  async request(verb: 'post' | 'clone' | 'delete', path: string, body: JsonValue = {}, actor = admin) {
    const [type, name] = path.split('/') as [TypeName, string]
    if (verb === 'delete') return this.model.remove(type, name, actor)
    const given = readObject(objectTypes[type], name, body)
    if (verb === 'clone') return this.model.clone(type, name, given, actor)
    return this.model.save(type, name, given, actor)
  }
}

/** One rule in one case: a request, and what it leaves or how it is refused. */
export interface Row {
  readonly is: string
  /** What is there beside the objects that all rows share; undefined: one of those is not. */
  readonly before?: Readonly<Record<string, object | undefined>>
  readonly request: readonly ['post' | 'clone' | 'delete', path: string, body?: JsonValue]
  readonly by?: Actor
  /** The objects that are different then; undefined: gone. */
  readonly after?: Readonly<Record<string, object | undefined>>
  readonly refused?: readonly [status: number, message: string | RegExp]
}

const present = (objects: Readonly<Record<string, object | undefined>>) =>
  Object.fromEntries(Object.entries(objects).filter(([, fields]) => fields !== undefined)) as Objects

/** Runs rows that share some objects, each on a cluster of its own. */
export function checkRows(t: Test, shared: Objects, rows: readonly Row[]): void {
  for (const { is, before, request, by, after = {}, refused } of rows)
    t.test(is, async t => {
      const start = present({ ...shared, ...before })
      const cluster = new MemoryCluster(start)
      const error = await cluster.request(request[0], request[1], request[2], by).then(
        () => undefined,
        (error: ServiceError) => error
      )
      if (refused) {
        t.equal(error?.status, refused[0], String(error))
        t.match(error?.message, refused[1])
      } else t.equal(error, undefined)
      t.strictSame(cluster.objects, present({ ...start, ...after }), 'state after')
    })
}
