import type { Controller } from '../store/medium.js'
import type { ReplicaStatus } from '../store/role.js'

/** The controllers that share the objects, as an admin sees them. A controller alone has no site. */
export interface Site {
  readonly status: ReplicaStatus
  /** The other controllers that are there. */
  readonly others: readonly Controller[]
  /** The absent controllers, the last seen first; `since`: start of the absence, ISO 8601, UTC. */
  readonly gone: readonly (Pick<Controller, 'name' | 'address' | 'port' | 'ini'> & {
    readonly since: string
  })[]
  /** Why this controller is not, or may not be, the primary; '' if it is. */
  readonly notPrimary: string
  /** Forgets an absent controller; false if there is none. Rejects with StoreError if it is not stored. */
  forget(name: string): Promise<boolean>
}
