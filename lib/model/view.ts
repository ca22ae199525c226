import type { Store } from '../store/store.js'
import type { Tx as StoreTx, View as StoreView } from '../store/types.js'
import type { Docs } from './docs.js'
import type { ClusterIndex } from './index.js'
import type { VariableMap } from './variables.js'

export type { Change } from '../store/types.js'
export type View = StoreView<Docs, ClusterIndex>
export type Tx = StoreTx<Docs, ClusterIndex>
export type ClusterStore = Store<Docs, ClusterIndex>

/** A controller by its name and its own address. */
export interface NamedController {
  readonly name: string
  readonly address: string
}

/** Cluster-wide settings that groups and nodes inherit, and what the controller takes for itself. */
export interface ClusterSettings {
  readonly provision_method: string
  readonly provision_fallback: string
  readonly ntp_server: string
  readonly debug: boolean
  readonly technical_contacts: string
  readonly variables: VariableMap
  readonly controller: NamedController
  /** Those that share the objects with it. */
  readonly otherControllers: readonly NamedController[]
  /** The addresses of `[http] url`. */
  readonly urlAddresses: readonly string[]
  /** The DNS server on the controller is svcd's: it knows the cluster's names. */
  readonly servesDns: boolean
  /** `[image] directory`, absolute. */
  readonly imageDirectory: string
}
