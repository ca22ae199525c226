import { hostname } from 'node:os'
import type { ApiRoute } from '../api/context.js'
import { type Trust, trustFor } from '../client/certificates.js'
import type { Base, Peers, PeersParts, PeersStart, StartedPeers } from '../composition.js'
import { digestsOf } from '../config/reachability.js'
import type { Config } from '../config/types.js'
import type { Controllers } from '../image/context.js'
import { Checksums } from '../image/copies/checksums.js'
import { Copies } from '../image/copies/copies.js'
import type { ClusterStore } from '../model/stored.js'
import type { Condition } from '../monitor/health.js'
import { LeaderExistsError, summaryOf } from '../store/errors.js'
import { NoRoomError } from '../store/etcd/client.js'
import type { EtcdMedium } from '../store/etcd/medium.js'
import { openEtcd } from '../store/etcd/open.js'
import type { FileMedium } from '../store/files/medium.js'
import type { Controller } from '../store/medium.js'
import type { FirstRecords, OpenRecords } from '../store/records.js'
import { Store } from '../store/store.js'
import type { SeenMachine } from '../unknown/machines.js'
import { ControllerDrift } from './checks.js'
import { Forwarding } from './forwarding.js'
import { ControllerAuth } from './proofs.js'
import { AUDIT_LINES, AuditLogs, copyRoutes, lineRoutes, linesOfOthers, UNKNOWN_LINES } from './routes.js'
import { SharedServiceState } from './service-state.js'

/** Opens the objects in etcd. The state directory, which has the rest of the state, is locked first. */
export async function openPeers(base: Base, local: FileMedium, start: PeersStart): Promise<Peers> {
  const { config, register } = base
  const { state } = config.paths
  await local.lock()
  await local.writeLogged(Object.keys(start.kinds))
  const log = (level: 'warn' | 'info', message: string) => start.log?.(level, message)
  const etcd = await openEtcd(config.store, { log, url: urlOf(config) })
  const beforeFirstWrite: PeersStart['beforeFirstWrite'] = async view => {
    await etcd.refuseEmptyStore(state)
    await etcd.refuseOtherKeys(state, etcd.stored?.keyFingerprints)
    await start.beforeFirstWrite?.(view)
  }
  const backUp: PeersStart['backUp'] = from => start.backUp(from, etcd.stored?.files())
  const store = register.add(await openStore(etcd, { ...start, beforeFirstWrite, backUp }, state))
  await etcd.writeMarker(state)
  return new EtcdPeers(base, etcd, store)
}

/**
 * Opens the store on this etcd, as the leader or a follower. Where stored data is damaged, or etcd has no
 * room, it follows until that is repaired: machines boot from what is sound.
 */
async function openStore(etcd: EtcdMedium, start: PeersStart, state: string): Promise<ClusterStore> {
  const onDamage: PeersStart['onDamage'] = problems =>
    start.log?.(
      'error',
      `machines are booted from what is sound, and nothing is written: ${summaryOf(problems, 10)}`
    )
  const options = { ...start, medium: etcd, onDamage }
  const follow = async (isWritten: boolean) => {
    await etcd.refuseOtherKeys(state, await etcd.keyFingerprints(), isWritten)
    return Store.follow(options)
  }
  // If etcd cannot be asked now, `open` waits for it.
  if ((await etcd.describeLeader().catch(() => '')) !== '') return follow(true)
  return Store.open(options).catch(error => {
    if (error instanceof LeaderExistsError) return follow(true)
    if (!(error instanceof NoRoomError)) throw error
    start.log?.('warn', `nothing can be written: ${error.message}`)
    return follow(false)
  })
}

/** Returns the URL at which other controllers reach this one. */
const urlOf = ({ http, store }: Config) => store.url || http.url

/** The controllers that share the objects in etcd. */
class EtcdPeers implements Peers {
  readonly images: Controllers
  /** These two are set by `start`. */
  #copies: Copies | undefined
  #services: SharedServiceState | undefined

  constructor(
    private readonly base: Base,
    private readonly etcd: EtcdMedium,
    readonly store: ClusterStore
  ) {
    const { name: own } = base.config.controller
    this.images = {
      own,
      others: () => etcd.others.map(({ name }) => name),
      whoHas: async (file, signal) => this.#copies?.whoHas(file, signal),
      having: async (pack, signal) => (await this.#copies?.having(pack, signal)) ?? [],
      outOfPlace: name => etcd.others.find(one => one.name === name)?.trees ?? []
    }
  }

  get status() {
    return this.etcd.role.status
  }

  get others(): readonly Controller[] {
    return this.etcd.others
  }

  get gone() {
    return this.#services?.gone ?? []
  }

  get controllers() {
    return this.#services?.controllers
  }

  get notPrimary(): string {
    const { role, problem } = this.etcd
    if (!role.isLeader) return 'this controller is a standby: it does not write'
    // Without etcd, or after a long pause, the lease may have passed to another controller.
    if (role.status.role !== 'primary') return 'this controller does not know whether it still writes'
    // For example, etcd is out of space.
    return problem === '' ? '' : 'this controller cannot write for the moment'
  }

  get condition(): Condition {
    const { ok, reason } = this.store.health
    if (!ok) return { ok, reason }
    const { role } = this.status
    if (role === 'unknown') return { ok, reason: 'it is not known whether this svcd still writes' }
    return { ok, reason: role === 'primary' ? role : `standby: ${this.etcd.role.following}` }
  }

  async forget(name: string): Promise<boolean> {
    return (await this.#services?.remove(name)) ?? false
  }

  records(kind: string, before?: FirstRecords): OpenRecords {
    return memory => this.etcd.records.open(kind, memory, before)
  }

  mayHave(file: string): boolean {
    const isReached = this.base.config.http.urls.length > 1 && this.others.length > 0
    return isReached && !this.#copies?.isNowhere(file)
  }

  keepKeys(): Promise<void> {
    return this.etcd.storeKeyFingerprints(this.base.config.paths.state)
  }

  async start(parts: PeersParts): Promise<StartedPeers> {
    const { config, log, now, ticks, register } = this.base
    const { audit, images, tokens, unknown } = parts
    const { role, ca } = this.etcd
    const { controller, file: ini } = config
    const own = { name: controller.name, url: urlOf(config) }
    const others = () => this.others
    const trust = trustFor(config.node.verify_certificate, ca)
    const copies = this.#startCopies(parts, trust)
    const key = tokens.keyFor('requests that are handed on')
    const forwarding = new Forwarding({ own, role, others, trust, key, now, ticks, log })
    register.conditions.push(
      () => forwarding.condition,
      () => this.#duplicateName
    )
    const digests = digestsOf(config, tokens.keyFor('digests of what the ini has to have everywhere'))
    const drift = new ControllerDrift({ name: own.name, own: digests, others, log })
    register.add(drift, { condition: () => drift.condition })
    const proofs = new ControllerAuth(tokens.keyFor('lines of audit logs'), now)
    // At a URL that they share with us we would answer ourselves.
    const askable = () =>
      this.others.map(({ name, url }) => ({ name, ...(url && url !== own.url ? { url } : {}) }))
    const known = () => this.#services?.controllers.map(({ name }) => name) ?? []
    const questions = { own: own.name, others: askable, controllerNames: known, trust, proofs }
    const told = {
      [`${AUDIT_LINES}/users`]: async () => (await audit.last('users')).lines,
      [`${AUDIT_LINES}/machines`]: async () => (await audit.last('machines')).lines,
      [UNKNOWN_LINES]: async () => unknown.all()
    }
    return {
      audit: new AuditLogs({ ...questions, audit }),
      unknown: async () => {
        const { answers, missing } = await linesOfOthers(questions, UNKNOWN_LINES)
        // A controller proved them: they have the shape that it gave them.
        return { lists: answers.map(({ lines }) => lines as readonly SeenMachine[]), missing }
      },
      services: await this.#startServices(),
      routes: [...copies, ...lineRoutes(told, proofs)],
      server: { handedOnFor: forwarding.handedOnFor, upstreamFor: forwarding.upstreamFor },
      announce: port => {
        const self = { ...controller, host: hostname(), port, ini, digests }
        this.etcd.join(self, now, () => images.trees.outOfPlace)
      }
    }
  }

  get #duplicateName(): Condition | undefined {
    const reason = this.etcd.duplicateName
    return reason === '' ? undefined : { ok: false, reason }
  }

  /** Starts the copies of files of images. Returns the routes by which this controller gives its own. */
  #startCopies({ model, images, tokens }: PeersParts, trust: Trust): ApiRoute[] {
    const { config, log, now, ticks, register } = this.base
    const proofs = new ControllerAuth(tokens.keyFor('files that controllers copy'), now)
    const { files, manifest } = images.context
    const copies = new Copies({
      ...{ config, model, log, ticks, files, manifest },
      sources: () => sourcesAmong(this.others, this.etcd.role.leader?.url, urlOf(config)),
      asking: { trust, proofs },
      arrived: () => images.look()
    })
    register.add(copies, {
      changes: changes => copies.follow(changes),
      condition: () => copies.condition
    })
    this.#copies = copies
    return copyRoutes({ model, config }, proofs, register.add(new Checksums(now)))
  }

  /** Opens what the controllers agree on for DHCP and DNS. */
  async #startServices(): Promise<SharedServiceState> {
    const { etcd } = this
    const { config, log, now, register } = this.base
    const services = await SharedServiceState.open(this.records('services'), {
      self: { ...config.controller, port: config.http.listen.port, ini: config.file },
      others: () => (etcd.isListed ? etcd.others : undefined),
      log,
      now
    })
    register.add(services, { role: services })
    this.#services = services
    return services
  }
}

/** Returns the other controllers, first the leader, as it has what it packed. A URL we share is ours. */
function sourcesAmong(others: readonly Controller[], leader: string | undefined, own: string) {
  const known = others.flatMap(({ name, url }) => (url === undefined || url === own ? [] : [{ name, url }]))
  if (leader === undefined || leader === own) return known
  const first = known.find(({ url }) => url === leader) ?? { name: 'that writes', url: leader }
  return [first, ...known.filter(other => other !== first)]
}
