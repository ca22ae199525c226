import type { ApiRoute } from './api/context.js'
import type { Caller } from './auth/access.js'
import type { Tokens } from './auth/tokens.js'
import type { Log } from './base/log.js'
import type { Config } from './config/types.js'
import type { ServerOptions } from './http/server.js'
import type { Controllers } from './image/context.js'
import type { Images } from './image/images.js'
import type { ClusterIndex } from './model/cluster-index.js'
import type { Docs } from './model/docs.js'
import type { Model } from './model/model.js'
import type { Change, ClusterStore, NamedController } from './model/stored.js'
import type { Audit } from './monitor/audit.js'
import type { Condition } from './monitor/health.js'
import type { Site } from './monitor/site.js'
import type { SharedServices } from './services/services.js'
import type { FileMedium } from './store/files/medium.js'
import type { FirstRecords, OpenRecords } from './store/records.js'
import type { RoleListener } from './store/role.js'
import type { StoreOptions } from './store/start.js'
import type { UnknownSources } from './unknown/list.js'
import type { UnknownMachines } from './unknown/machines.js'

/** The events that concern a part. */
interface Hooks {
  /** Called with all committed changes, as by `Store.subscribe`. */
  changes?(changes: readonly Change[], more: boolean): void
  /** Called with the changes that a person made through this controller. */
  requested?(changes: readonly Change[]): void
  /** Called when this controller becomes the leader, or no longer is. */
  readonly role?: RoleListener
  /** Its share in the health of svcd. */
  condition?(): Condition | undefined
  /** Closes it. Default: its own `close`, if it has one. */
  close?(): unknown
}

/** The parts of a daemon. Events reach them in the order in which they were added; they close in reverse. */
export class Register {
  /** The conditions of svcd. */
  readonly conditions: (() => Condition | undefined)[] = []
  readonly #requested: ((changes: readonly Change[]) => void)[] = []
  readonly #closers: (() => unknown)[] = []
  #store: Pick<ClusterStore, 'subscribe' | 'role'> | undefined

  /** Connects the parts that are added from now on with the store and its role. */
  connect(store: ClusterStore): void {
    this.#store = store
  }

  /** Adds a part and returns it. */
  add<P extends object>(part: P, { changes, requested, role, condition, close }: Hooks = {}): P {
    if (changes) this.#store?.subscribe(changes)
    if (role) this.#store?.role.subscribe(role)
    if (requested) this.#requested.push(requested)
    if (condition) this.conditions.push(condition)
    if (close) this.#closers.push(close)
    else if ('close' in part && typeof part.close === 'function') {
      const { close } = part
      this.#closers.push(() => close.call(part))
    }
    return part
  }

  /** Reports the changes that a person made through this controller. */
  requested(changes: readonly Change[]): void {
    for (const listener of this.#requested) listener(changes)
  }

  /** Closes all parts. */
  async close(): Promise<void> {
    for (const closer of this.#closers.reverse()) await closer()
  }
}

/** The clocks, the log and the register that all parts share. */
export interface Base {
  readonly config: Config
  readonly log: Log
  /** Milliseconds since 1970; may be set back. */
  readonly now: () => number
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  readonly register: Register
}

/** The wing for controllers that share the objects: `peers/`. */
export interface PeersModule {
  /** Opens the store, as the leader or a follower. */
  openPeers(base: Base, local: FileMedium, start: PeersStart): Promise<Peers>
}

/** How the store is opened. `objects`: the stored texts that are not in the state directory. */
export interface PeersStart extends Omit<StoreOptions<Docs, ClusterIndex>, 'medium' | 'backUp'> {
  backUp(from: number, objects?: Iterable<readonly [path: string, text: string]>): Promise<string>
}

/** The controllers that share the objects with this one. */
export interface Peers extends Site {
  readonly store: ClusterStore
  /** The condition of the store. */
  readonly condition: Condition
  /** Opens shared records; `before` supplies the first ones. */
  records(kind: string, before?: FirstRecords): OpenRecords
  readonly images: Controllers
  /** The controllers that zones name. */
  readonly controllers: readonly NamedController[] | undefined
  /** Whether another controller may have a file that is not here. */
  mayHave(file: string): boolean
  /** Stores the fingerprints of the leader's keys. Throws Error if others are stored. */
  keepKeys(): Promise<void>
  /** Starts all that passes between controllers. */
  start(parts: PeersParts): Promise<StartedPeers>
}

/** The parts that the work between controllers needs. */
export interface PeersParts {
  readonly model: Model
  readonly images: Images
  readonly audit: Audit
  readonly tokens: Tokens
  readonly unknown: Pick<UnknownMachines, 'all'>
}

/** The started work between controllers. */
export interface StartedPeers {
  /** The audit logs of all controllers. */
  readonly audit: Pick<Audit, 'last'>
  /** The unknown machines of the other controllers. */
  readonly unknown: NonNullable<UnknownSources['others']>
  readonly services: SharedServices
  readonly routes: readonly ApiRoute[]
  readonly server: Pick<ServerOptions<Caller>, 'handedOnFor' | 'upstreamFor'>
  /** Announces this controller to the others, once it listens on this port. */
  announce(port: number): void
}
