import type { IncomingMessage } from 'node:http'
import type { ApiRoute } from '../api/context.js'
import type { Log } from '../base/log.js'
import { isPlain } from '../config/reachability.js'
import type { ForwardedCaller, RequestHead, Upstream } from '../http/route.js'
import type { Condition } from '../monitor/health.js'
import { NotLeaderError } from '../store/errors.js'
import type { Controller } from '../store/medium.js'
import type { Role } from '../store/role.js'
import { LeaderReach } from './checks.js'
import { ForwardAuth } from './proofs.js'

/** Routes that machines read to boot, that a person opens first, and the token for them. */
const answered = new RegExp(
  '^/(?:(?:auth|boot|trust|kickstart|files|copies|audit|unknown|page|version|openapi\\.json|metrics|token|' +
    'monitor/(?:primary|service|status))(?:/|$)|$)'
)

/** Whether a follower answers this: most other routes change something, or show what only the leader has. */
const isAnswered = ({ path, effect }: Pick<ApiRoute, 'path' | 'effect'>) =>
  answered.test(path) && (effect === 'reads' || /^\/(?:token$|auth\/)/.test(path))

interface ForwardingOptions {
  /** Name of this controller, and the URL at which others reach it. */
  readonly own: { readonly name: string; readonly url: string }
  readonly role: Pick<Role, 'isLeader' | 'leader' | 'fencingToken'>
  readonly others: () => readonly Controller[]
  readonly trust: Upstream['trust']
  /** The controllers' shared key for this purpose. */
  readonly key: Uint8Array
  readonly now: () => number
  readonly ticks: () => number
  readonly log: Log
}

/** Forwards requests to the leader, and recognises those that other controllers forward to this one. */
export class Forwarding {
  readonly #auth: ForwardAuth
  readonly #reach: LeaderReach

  constructor(private readonly o: ForwardingOptions) {
    const { own, role, others, key, now, ticks, log } = o
    this.#auth = new ForwardAuth(key, () => role.fencingToken, now)
    this.#reach = new LeaderReach({ own: own.url, others, leader: () => role.leader?.url, ticks, log })
    if (isPlain(own.url))
      log.warn(
        `other controllers hand requests and tokens on to ${own.url} in the clear: ` +
          '[store] url = https://... has them encrypted'
      )
  }

  /** Failed while the leader cannot be asked. */
  get condition(): Condition | undefined {
    return this.#reach.condition
  }

  /** The original caller of a request that another controller forwarded. Throws as `ForwardAuth.verify`. */
  readonly handedOnFor = (request: IncomingMessage): ForwardedCaller | undefined => {
    const { method = '', url = '', headers, socket } = request
    const { own } = this.o
    const other = this.#nameAt(socket.remoteAddress)
    return this.#auth.verify({ method, target: url, headers }, `controller ${own.name}`, other)
  }

  /**
   * Returns the leader where a follower has to forward a request; undefined where this controller answers
   * itself. Throws 503 without a leader, and for a request that was forwarded already.
   */
  readonly upstreamFor = (
    route: Pick<ApiRoute, 'path' | 'effect'>,
    { method, headers, source, headOnly, target }: RequestHead
  ): Upstream | undefined => {
    const { role, trust } = this.o
    if (role.isLeader || isAnswered(route)) return undefined
    if (source.isHandedOn)
      throw new NotLeaderError(
        'this was handed on by another controller, and this one is not the primary: send the request again'
      )
    if (!role.leader) throw new NotLeaderError('no primary is known for the moment')
    const { url, token, gone } = role.leader
    const head = { method: headOnly ? 'HEAD' : method, target, headers }
    return {
      ...{ url, gone, trust },
      headersFor: body => this.#auth.headersFor(token, head, source.address, body),
      onOutcome: failure => this.#reach.recordOutcome(url, failure)
    }
  }

  #nameAt(from = ''): string {
    const address = from.replace(/^::ffff:/, '')
    const names = this.o.others().flatMap(other => (other.address === address ? other.name : []))
    return `controller ${names.join(' or ') || `at ${address}`}`
  }
}
