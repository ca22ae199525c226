/** Replication status of a controller. */
export interface ReplicaStatus {
  /** `unknown`: it led last, and is cut off or its lease has expired. */
  readonly role: 'primary' | 'standby' | 'unknown'
  /** The number of the last commit known here. */
  readonly revision: number
  /** Time since it was last up to date, in milliseconds; 0 while it leads. */
  readonly lag_ms: number
}

/** The endpoint of a leader. */
export interface LeaderEndpoint {
  /** Its URL, http or https. */
  readonly url: string
  /** Its fencing token: differs for each leadership. */
  readonly token: string
  /** Aborted when it no longer leads. */
  readonly gone: AbortSignal
}

/** Receives changes of leadership. Must not throw. */
export interface RoleListener {
  /** This controller leads now. */
  becameLeader?(): void
  /** Another controller leads, or may. */
  steppedDown?(): void
}

/** Knows who leads: this controller, another one, or none. */
export interface Role {
  readonly isLeader: boolean
  /** Describes the leader that this controller follows; '' while it leads. */
  readonly following: string
  /** The leader's endpoint; undefined if this controller leads, or none is known. */
  readonly leader: LeaderEndpoint | undefined
  /** Our fencing token, as in LeaderEndpoint; undefined if we do not lead. */
  readonly fencingToken: string | undefined
  readonly status: ReplicaStatus
  /** Adds a listener, called after those added before it. */
  subscribe(listener: RoleListener): void
}

/** The role of a controller alone: it always leads. */
export const soleLeader: Role = {
  isLeader: true,
  following: '',
  leader: undefined,
  fencingToken: undefined,
  status: { role: 'primary', revision: 0, lag_ms: 0 },
  subscribe: () => {}
}
