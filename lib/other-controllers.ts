import type { IncomingMessage } from 'node:http'
import { auditLineRoutes, copyRoutes, upstreamFor } from './api/between-controllers.js'
import type { Parts } from './api/context.js'
import { trustFor } from './ask-controller.js'
import type { Caller } from './auth/access.js'
import { ControllerAuth, ForwardAuth } from './auth/controller-proof.js'
import type { Tokens } from './auth/tokens.js'
import type { Log } from './base/log.js'
import { digestsOf, isPlain } from './config/reachability.js'
import type { Config } from './config/types.js'
import type { RequestHead, Route } from './http/route.js'
import type { Controllers } from './image/context.js'
import { Checksums } from './image/copies/checksums.js'
import { Copies, type CopiesOptions } from './image/copies/copies.js'
import type { ClusterIndex } from './model/cluster-index.js'
import type { Docs } from './model/docs.js'
import type { ClusterStore } from './model/stored.js'
import type { Audit } from './monitor/audit.js'
import { AuditLogs } from './monitor/audit-logs.js'
import { ControllerDrift, LeaderReach } from './monitor/controller-checks.js'
import { SharedServiceState } from './services/shared.js'
import { LeaderExistsError, type Problem, summaryOf } from './store/errors.js'
import { NoRoomError } from './store/etcd/client.js'
import type { EtcdMedium } from './store/etcd/medium.js'
import { openEtcd } from './store/etcd/open.js'
import type { FileMedium } from './store/files/medium.js'
import type { Controller, SharedMedium } from './store/medium.js'
import type { StoreOptions } from './store/start.js'
import { Store } from './store/store.js'

// The parts of the daemon for several controllers. Loaded only with etcd.

/** Opens etcd for the objects, and holds the state directory, which has the rest of the state. */
export async function openShared(
  local: FileMedium,
  config: Config,
  log: (level: 'warn' | 'info', message: string) => void
): Promise<EtcdMedium> {
  await local.lock()
  return openEtcd(config.store, { log, url: urlOf(config) })
}

/**
 * Opens the store on this etcd, as the leader or a follower. Where stored data is damaged, or etcd has no
 * room, it follows until that is repaired: machines boot from what is sound.
 */
export async function storeOn(
  etcd: EtcdMedium,
  more: Omit<StoreOptions<Docs, ClusterIndex>, 'medium'>,
  state: string
): Promise<ClusterStore> {
  const damaged = (problems: readonly Problem[]) =>
    more.log?.(
      'error',
      `machines are booted from what is sound, and nothing is written: ${summaryOf(problems, 10)}`
    )
  const options = { ...more, medium: etcd, damaged }
  const follow = async (isWritten: boolean) => {
    await etcd.refuseOtherKeys(state, await etcd.keyMarks(), isWritten)
    return Store.follow(options)
  }
  // If etcd cannot be asked now, `open` waits for it.
  if ((await etcd.holder().catch(() => '')) !== '') return follow(true)
  return Store.open(options).catch(error => {
    if (error instanceof LeaderExistsError) return follow(true)
    if (!(error instanceof NoRoomError)) throw error
    more.log?.('warn', `nothing can be written: ${error.message}`)
    return follow(false)
  })
}

/** Opens what the controllers agree on for DHCP and DNS. */
export function sharedServices(
  etcd: EtcdMedium,
  { controller, http, file }: Config,
  log: Log,
  now: () => number
): Promise<SharedServiceState> {
  return SharedServiceState.open(memory => etcd.records.open('services', memory), {
    self: { ...controller, port: http.listen.port, ini: file },
    others: () => (etcd.isListed ? etcd.others : undefined),
    log,
    now
  })
}

/** Returns the URL at which other controllers reach this one. */
const urlOf = ({ http, store }: Config) => store.url || http.url

/** The questions between controllers, each with its own key, and the trusted certificates. */
export const questionsOf = ({ ca }: EtcdMedium, { node }: Config, tokens: Tokens, now: () => number) => ({
  trust: trustFor(node.verify_certificate, ca),
  files: new ControllerAuth(tokens.keyFor('files that controllers copy'), now),
  audit: new ControllerAuth(tokens.keyFor('lines of audit logs'), now)
})
type Questions = ReturnType<typeof questionsOf>

/**
 * The audit logs of all controllers as one, and the route for the others. `known`: the names of recent
 * controllers.
 */
export function auditLogs(
  audit: Pick<Audit, 'last'>,
  shared: SharedMedium,
  config: Config,
  { audit: questions, trust }: Questions,
  known: () => readonly string[]
) {
  const logs = new AuditLogs({
    ...{ own: config.controller.name, audit, known, proofs: questions },
    // At a URL that they share with us we would answer ourselves.
    others: () =>
      shared.others.map(({ name, url }) => ({ name, ...(url && url !== urlOf(config) ? { url } : {}) })),
    trust
  })
  return { logs, routes: auditLineRoutes(audit, questions) }
}

/** The other controllers, as the work on images sees them. `copies`: asks them for files. */
export function controllersOf(
  shared: SharedMedium,
  config: Config,
  copies: () => Pick<Controllers, 'whoHas' | 'having'> | undefined
): Controllers {
  const { name: own } = config.controller
  return {
    own,
    others: () => shared.others.map(({ name }) => name),
    whoHas: async (file, signal) => copies()?.whoHas(file, signal),
    having: async (pack, signal) => (await copies()?.having(pack, signal)) ?? [],
    outOfPlace: name => shared.others.find(one => one.name === name)?.trees ?? []
  }
}

/** The copies of files of images, and the routes by which this controller gives its own. */
export async function fileCopies(
  parts: Pick<Parts, 'config' | 'model' | 'images'> &
    Pick<CopiesOptions, 'log' | 'ticks'> & { readonly now: () => number; readonly store: ClusterStore },
  shared: SharedMedium,
  questions: Questions
) {
  const { config, model, images, store, now, log, ticks } = parts
  const checksums = new Checksums(now)
  const { files, manifest } = images.context
  const copies = new Copies({
    ...{ config, model, log, ticks, files, manifest },
    sources: () => sourcesAmong(shared.others, store.writer?.url, urlOf(config)),
    asking: { trust: questions.trust, proofs: questions.files },
    arrived: () => images.look()
  })
  store.subscribe(changes => copies.follow(changes))
  return {
    routes: copyRoutes({ model, config }, questions.files, checksums),
    copies,
    close: async () => {
      checksums.close()
      await copies.close()
    }
  }
}

/**
 * Returns the other controllers, the leader first, as it has what it packed. A URL that they share with us is
 * ours.
 */
function sourcesAmong(others: readonly Controller[], writer: string | undefined, own: string) {
  const known = others.flatMap(({ name, url }) => (url === undefined || url === own ? [] : [{ name, url }]))
  if (writer === undefined || writer === own) return known
  const first = known.find(({ url }) => url === writer) ?? { name: 'that writes', url: writer }
  return [first, ...known.filter(other => other !== first)]
}

/** Compares ini and clock of this controller with those of the others. */
export function sameIni(shared: SharedMedium, config: Config, tokens: Tokens, log: Log): ControllerDrift {
  const own = digestsOf(config, tokens.keyFor('digests of what the ini has to have everywhere'))
  return new ControllerDrift({ name: config.controller.name, own, others: () => shared.others, log })
}

/** The forwarding of requests to the leader, and the requests that others forward to this one. */
export function handingOn(
  { store, shared }: { readonly store: ClusterStore; readonly shared: SharedMedium },
  tokens: Tokens,
  { trust }: Pick<Questions, 'trust'>,
  config: Config,
  { now, ticks, log }: { readonly now: () => number; readonly ticks: () => number; readonly log: Log }
) {
  const url = urlOf(config)
  const requests = new ForwardAuth(tokens.keyFor('requests that are handed on'), () => shared.right, now)
  if (isPlain(url))
    log.warn(
      `other controllers hand requests and tokens on to ${url} in the clear: [store] url = https://... ` +
        'has them encrypted'
    )
  const reach = new LeaderReach({
    ...{ own: url, ticks, log },
    others: () => shared.others,
    writer: () => store.writer?.url
  })
  const options = { store, requests, told: reach.told.bind(reach), trust }
  const nameAt = (from = '') => {
    const address = from.replace(/^::ffff:/, '')
    const names = shared.others.flatMap(other => (other.address === address ? other.name : []))
    return `controller ${names.join(' or ') || `at ${address}`}`
  }
  const own = `controller ${config.controller.name}`
  return {
    handedOnFor: ({ method = '', url = '', headers, socket }: IncomingMessage) =>
      requests.handedOn({ method, target: url, headers }, own, nameAt(socket.remoteAddress)),
    elsewhere: (route: Route<Caller>, head: RequestHead) => upstreamFor(options, route, head),
    get condition() {
      return reach.condition
    }
  }
}
