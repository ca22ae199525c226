import type { ClusterIndex } from '../../lib/model/index.js'
import { type Actor, Model } from '../../lib/model/model.js'
import { SecretBox } from '../../lib/model/secret-box.js'
import type { Docs } from '../../lib/model/tables.js'
import { createIndex, kinds } from '../../lib/model/types.js'
import type { ClusterSettings, Tx } from '../../lib/model/view.js'
import { State } from '../../lib/store/state.js'
import { Transaction } from '../../lib/store/transaction.js'
import type { Change } from '../../lib/store/types.js'

/** `<type>/<name>` → what the object sets, without its name. */
export type Objects = Readonly<Record<string, object>>

export const settings: ClusterSettings = {
  provision_method: 'torrent',
  provision_fallback: 'http',
  ntp_server: '',
  debug: false,
  technical_contacts: '',
  controller: { name: 'controller', address: '10.141.255.254' }
}

export const admin: Actor = { who: 'user admin', from: '127.0.0.1', takesAddresses: true }

/** A model without a disk: the store's states and transactions in memory, durable at once. */
export class MemoryCluster {
  readonly #state = new State<Docs, ClusterIndex>(Object.keys(kinds), createIndex())
  readonly #kinds = new Map(Object.entries(kinds))
  readonly audited: { readonly kind: 'change' | 'import'; readonly changes: readonly Change[] }[] = []
  readonly model: Model

  constructor(objects: Objects = {}) {
    for (const [path, fields] of Object.entries(objects)) {
      const [type = '', name = ''] = path.split('/')
      const doc = this.#kinds.get(type)?.decode(name, { name, ...fields })
      this.#state.set(type, name, doc)
    }
    this.model = new Model({
      store: { current: this.#state, change: fn => this.#change(fn) },
      ini: settings,
      now: () => 1_000,
      box: new SecretBox(new Uint8Array(32)),
      audit: async (_, changes, kind) => void this.audited.push({ kind, changes })
    })
  }

  async #change<R>(fn: (tx: Tx) => R): Promise<R> {
    const tx = new Transaction<Docs, ClusterIndex>(this.#state, this.#kinds)
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
}
