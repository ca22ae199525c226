import { type Access, accountOf, type Caller, isAdmin, type Limit } from '../auth/access.js'
import type { Logins } from '../auth/logins.js'
import type { ProgramTokens } from '../auth/program-tokens.js'
import type { Tokens } from '../auth/tokens.js'
import type { Boot } from '../boot/boot.js'
import type { Handover } from '../boot/handover.js'
import type { Install } from '../boot/install.js'
import type { Library } from '../boot/library.js'
import type { NodeFiles } from '../boot/node-files.js'
import type { Trace } from '../boot/trace.js'
import type { Config } from '../config/types.js'
import type { Consoles } from '../consoles/consoles.js'
import type { Control } from '../control/control.js'
import type { Answer, Request, Route } from '../http/route.js'
import type { Oidc } from '../identity/oidc.js'
import type { Images } from '../image/images.js'
import type { Inventories } from '../inventory/inventories.js'
import type { OddNodes } from '../inventory/odd.js'
import type { Jobs } from '../jobs/jobs.js'
import type { Actor, Model } from '../model/model.js'
import type { Audit } from '../monitor/audit.js'
import type { Boots } from '../monitor/boots.js'
import type { Events } from '../monitor/events.js'
import type { Health } from '../monitor/health.js'
import type { Metrics } from '../monitor/metrics.js'
import type { NodeStatus } from '../monitor/node-status.js'
import type { Overview } from '../monitor/overview.js'
import type { Site } from '../monitor/site.js'
import type { Rehearsals } from '../rehearsal/rehearsals.js'
import type { Leases } from '../services/dhcp/leases.js'
import type { Services } from '../services/services.js'
import type { Trust } from '../trust/trust.js'
import type { UnknownSources } from '../unknown/list.js'
import type { BmcScan } from '../unknown/scan.js'
import type { Schema } from './schema.js'

export interface Parts {
  readonly config: Config
  readonly model: Model
  readonly status: NodeStatus
  readonly boots: Boots
  readonly trace: Trace
  readonly inventories: Inventories
  readonly odd: OddNodes
  /** Reports changes of a node's hardware to the log and to the event stream. */
  readonly onHardware: (node: string, changes: readonly string[]) => void
  readonly health: Health
  readonly events: Events
  readonly overview: Overview
  readonly audit: Pick<Audit, 'last'>
  readonly logins: Logins
  readonly tokens: Tokens
  /** Undefined without `[auth] oidc_issuer`. */
  readonly oidc: Oidc | undefined
  readonly programs: ProgramTokens
  readonly boot: Boot
  readonly handover: Handover
  readonly install: Install
  readonly library: Library
  readonly trust: Trust
  readonly nodeFiles: NodeFiles
  readonly jobs: Jobs
  readonly services: Services
  /** Undefined if svcd manages no DHCP server. */
  readonly leases: Leases | undefined
  readonly images: Images
  readonly control: Control
  readonly consoles: Consoles
  readonly metrics: Metrics
  readonly site: Site | undefined
  readonly unknown: UnknownSources
  readonly scan: BmcScan
  readonly rehearsals: Rehearsals
  /** Adds a change outside the model to the audit log. */
  readonly record: Audit['record']
}

export interface ApiRequest extends Request<Caller> {
  /** A dry run: nothing is stored (rules 12.7). */
  readonly dryRun?: Actor['dryRun']
  /** Checks If-Match in the transaction of the change (rules 2.21). */
  readonly precondition?: Actor['precondition']
  /** Collects a handler's warnings before its transaction ends, so that a dry run has them too. */
  readonly warnings?: string[]
}

/** The request with some properties replaced. Query and signal are still made on first use. */
export const replaced = (request: ApiRequest, parts: Partial<ApiRequest>): ApiRequest => ({
  ...{ method: request.method, path: request.path, params: request.params },
  ...{ headers: request.headers, source: request.source, caller: request.caller },
  ...{ body: request.body, headOnly: request.headOnly },
  get query() {
    return request.query
  },
  target: request.target,
  get signal() {
    return request.signal
  },
  ...(request.dryRun ? { dryRun: request.dryRun } : {}),
  ...(request.warnings ? { warnings: request.warnings } : {}),
  ...(request.precondition ? { precondition: request.precondition } : {}),
  ...parts
})

/** A row of the route table: router, access check and documents are made from it. */
export interface ApiRoute extends Route<Caller> {
  readonly access: Access
  /** Operators may call it too (rules 5.2). */
  readonly operator?: true
  /** How it respects a limit to groups; absent: limited callers may not call it. */
  readonly limited?: Limit | undefined
  /** Every status of this route, successes first; 405, 408, 413 and 500 are implied. */
  readonly codes: readonly number[]
  readonly summary: string
  readonly query: Readonly<Record<string, Schema>>
  /** A node set may replace {node} (rules 12.3). */
  readonly sets?: true
  handler(request: ApiRequest): Answer | Promise<Answer>
  readonly input?: Schema
  readonly output?: Schema
}

/** The caller of a request in the form of the model and the audit log. */
export function actorOf({ caller, source, dryRun, precondition }: ApiRequest): Actor {
  const who =
    caller.kind === 'user'
      ? `user ${accountOf(caller)}`
      : caller.kind === 'node'
        ? `node ${caller.node}`
        : 'nobody'
  const actor = { who, from: source.address, mayTakeAddresses: isAdmin(caller) }
  return { ...actor, ...(dryRun ? { dryRun } : {}), ...(precondition ? { precondition } : {}) }
}

/** The actor of a change that `expect=MARK` binds to its dry run (rules 12.7). */
export function expecting(request: ApiRequest): Actor {
  const expected = request.query.get('expect')
  return { ...actorOf(request), ...(expected === null ? {} : { expected }) }
}

/** Returns a 200 with a JSON body. */
export const ok = (body: object): Answer => ({ status: 200, body })

/** `{"config": {type: {name: fields}}}`. */
export const config = (type: string, objects: object) => ({ config: { [type]: objects } })

/** Returns a 200 with one object's values, in the envelope and beside it (rules 1.1). */
export const okTwice = (type: string, name: string, values: object): Answer =>
  ok({ ...config(type, { [name]: values }), ...values })

/** The answer to a change: 204 is empty, others have a message (rules 1.5). */
export const done = (status: number, message: string): Answer =>
  status === 204 ? { status } : { status, body: { message } }

/** A time as answers show it; `ms`: since 1970. */
export const isoTime = (ms: number | undefined) => (ms === undefined ? null : new Date(ms).toISOString())

/** Changes a result, at once where it is ready: promises cost much when thousands of machines ask. */
export const whenReady = <A, B>(given: A | Promise<A>, change: (given: A) => B): B | Promise<B> =>
  given instanceof Promise ? given.then(change) : change(given)

/** The header with a new token for a node whose own will expire; none for others. */
export function renewedToken({ tokens }: Parts, caller: Caller): Readonly<Record<string, string>> {
  const renewed = caller.kind === 'node' ? tokens.renewNode(caller) : undefined
  return renewed === undefined ? {} : { 'x-access-tokens': renewed }
}

/** Returns a path parameter. Throws TypeError if the route's path has none of this name. */
export function param(request: ApiRequest, name: string): string {
  const value = request.params[name]
  if (value === undefined) throw new TypeError(`route ${request.path} has no parameter ${name}`)
  return value
}
