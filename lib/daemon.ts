import { mkdir } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import type { ApiRoute, Parts } from './api/context.js'
import { shownSummary } from './api/jobs.js'
import { checkParam } from './api/params.js'
import { routes } from './api/routes.js'
import { authorize, type Caller, largestBody } from './auth/access.js'
import { adminPasswordFile, ensureAdminPassword, Logins } from './auth/logins.js'
import { Tokens } from './auth/tokens.js'
import { refuseHalfRestored } from './backup/state-names.js'
import { backUpState } from './backup/stored-files.js'
import { Background } from './base/background.js'
import { createLog, type Log } from './base/log.js'
import { Boot } from './boot/boot.js'
import { FileCatalog } from './boot/file-catalog.js'
import { Handover } from './boot/handover.js'
import { Grants, Install } from './boot/install.js'
import { Library } from './boot/library.js'
import { NodeFiles } from './boot/node-files.js'
import { PreviousPack } from './boot/previous-pack.js'
import { warnOfRoles } from './boot/roles.js'
import { Trace } from './boot/trace.js'
import { ownFirst } from './config/reachability.js'
import type { Config } from './config/types.js'
import { Control } from './control/control.js'
import { realFiles } from './disk/steps.js'
import { helperSettingsOf } from './helper/directories.js'
import { localHelper } from './helper/local.js'
import type { RootHelper } from './helper/root-helper.js'
import { systemctlBy } from './helper/systemctl.js'
import { Certificate } from './http/certificate.js'
import { descriptorShare } from './http/descriptors.js'
import type { Limits } from './http/limits.js'
import { HttpServer, type ServerOptions } from './http/server.js'
import type { Copies } from './image/copies/copies.js'
import { Images } from './image/images.js'
import { Distribution } from './image/torrent/distribution.js'
import { Remote } from './image/transfer/remote.js'
import { ofMachine } from './image/transfers.js'
import { Jobs } from './jobs/jobs.js'
import { limitWarnings } from './model/limits.js'
import { daemonActor, Model, storeOptions } from './model/model.js'
import { secretBoxOf, unlockBox, unreadableSecrets } from './model/secrets.js'
import { iniSettings, putSettings } from './model/settings.js'
import type { ClusterStore, View } from './model/stored.js'
import { generationOf } from './model/types/node.js'
import { Audit, isByMachine } from './monitor/audit.js'
import { Boots } from './monitor/boots.js'
import { DiskSpace } from './monitor/disk-space.js'
import { Events } from './monitor/events.js'
import { Health, LoopDelay, queueCondition } from './monitor/health.js'
import { Metrics } from './monitor/metrics.js'
import { NodeStatus } from './monitor/node-status.js'
import { connectEvents, Overview } from './monitor/overview.js'
import { findStaleSliced } from './monitor/stale.js'
import { command } from './services/control.js'
import { leases, Services } from './services/services.js'
import type { SharedServiceState } from './services/shared.js'
import { FileMedium } from './store/files/medium.js'
import { journalIn } from './store/journal.js'
import { Store } from './store/store.js'
import type { Change } from './store/types.js'
import { Templates } from './template/templates.js'
import { version } from './version.js'

/** A running daemon. */
export interface Daemon {
  readonly address: string
  readonly port: number
  /** Undefined without `[http] tls_certificate`. */
  readonly tlsPort: number | undefined
  readonly server: HttpServer<Caller>
  readonly model: Model
  readonly boots: Boots
  readonly jobs: Jobs
  readonly services: Services
  readonly images: Images
  /** Stops accepting, lets requests under way finish for up to `graceMs`, flushes, unlocks. */
  close(graceMs: number): Promise<void>
}

/**
 * Builds the parts from a configuration and starts them. Throws LoadError, LockedError, TemplateError or a
 * system error, with nothing left running. `now`: milliseconds since 1970; it may be set back, so durations
 * use another clock. `work` does root's work; default: this process.
 */
export async function startDaemon(
  config: Config,
  log: Log = createLog(config.log.level),
  now: () => number = Date.now,
  work: RootHelper = localHelper(helperSettingsOf(config, true))
): Promise<Daemon> {
  const closers: (() => unknown)[] = []
  const close = async () => {
    for (const closer of closers.reverse()) await closer()
  }
  try {
    const { between, digests, ...parts } = await buildParts(config, log, now, work, closers)
    const { model, boots, tokens, logins, jobs, services, images, metrics } = parts
    const standing = {
      tokens,
      roleOf: (user: string) => logins.roleOf(user),
      standsFor: model.standsFor.bind(model)
    }
    const { front_files, listen, tls_certificate, tls_key: key } = config.http
    const certificate = tls_certificate
      ? await Certificate.open(
          { certificate: tls_certificate, key, authorities: config.store.ca },
          { log, now, forNodes: config.http.urls.some(url => url.startsWith('https:')) }
        )
      : undefined
    if (certificate) closers.push(() => certificate.close())
    const server = new HttpServer<Caller>({
      ...between,
      routes: [...routes(parts), ...between.routes],
      authorize: (route, head) => authorize(standing, route, head),
      param: checkParam,
      shown: (refusal, incoming) => parts.boot.told(refusal, incoming),
      maxBody: caller => largestBody(caller, config.http.max_body),
      isKnown: ({ kind }) => kind === 'user',
      trustedProxies: config.http.trusted_proxies,
      frontFiles: front_files === '' ? undefined : { directory: config.paths.files, location: front_files },
      counted: request => metrics.request(request),
      limits: connectionLimits(config.http),
      log
    })
    const { address, port } = await server.listen(listen.address, listen.port)
    log.info(`listening on ${address} port ${port}`)
    closers.push(() => server.close(0))
    const { controller, file } = config
    const self = { ...controller, host: hostname(), port, ini: file, digests }
    parts.shared?.join(self, now, () => parts.images.trees.outOfPlace)
    const tls =
      certificate &&
      (await server
        .listenTls(listen.address, config.http.tls_port, () => certificate.context)
        .catch((error: Error) => {
          throw Object.assign(error, { key: '[http] tls_port' })
        }))
    if (tls) log.info(`listening with TLS on ${tls.address} port ${tls.port}`)
    return {
      address,
      port,
      tlsPort: tls?.port,
      server,
      model,
      boots,
      jobs,
      services,
      images,
      async close(graceMs) {
        // A request that waits for its job is answered before its connection is cut.
        await Promise.all([server.close(graceMs), jobs.close(graceMs / 2)])
        await close()
      }
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** Bound of requests forwarded at once. */
const MOST_FORWARDS = 1000

/** The ini's limits, reduced to the available descriptors; all files of the parts are open by now. */
function connectionLimits(http: Config['http']): Partial<Limits> {
  const { connections, downloads, crowded } = descriptorShare()
  return {
    ...{ connections, crowded },
    connectionsPerAddress: http.max_connections_per_address,
    downloads: Math.min(http.max_downloads, downloads),
    // Each forward takes a second descriptor.
    forwards: Math.min(MOST_FORWARDS, Math.max(8, Math.floor(downloads / 2)))
  }
}

/** Answers of the server to other controllers of a site. */
type BetweenControllers = Pick<ServerOptions<Caller>, 'handedOnFor' | 'elsewhere'> & {
  readonly routes: readonly ApiRoute[]
}

/** Builds the parts, each from those above it; `closers` closes them in reverse order. */
async function buildParts(
  config: Config,
  log: Log,
  now: () => number,
  work: RootHelper,
  closers: (() => unknown)[]
): Promise<
  Parts & { readonly between: BetweenControllers; readonly digests: Readonly<Record<string, string>> }
> {
  /** Monotonic clock in milliseconds. */
  const ticks = () => performance.now()
  const { auth, boot: booting, http, log: logging, monitor, torrent, users } = config
  const { state, templates: templateDirectory, files, roles } = config.paths
  const closed = <P extends { close(): unknown }>(part: P): P => {
    closers.push(() => part.close())
    return part
  }
  const ini = iniSettings(config)
  await refuseHalfRestored(state)
  // Starts the disk thread while the state is read, so that the first change does not wait for it.
  realFiles.inOrder([]).catch(() => {})
  const box = await secretBoxOf(state)
  const options = {
    ...storeOptions(state, ini, box, version.service),
    log: (level: 'warn' | 'info' | 'error', message: string) => log[level](message)
  }
  const local = new FileMedium(options)
  const sharing = config.store.medium === 'etcd' ? await import('./other-controllers.js') : undefined
  const etcd = await sharing?.openShared(closed(local), config, options.log)
  let promoted = () => {}
  let roleChanged = () => {}
  const start = {
    ...options,
    backUp: (from: number) => backUpState(state, from, version.service, etcd?.stored?.files()),
    opened: async (view: View) => {
      await etcd?.refuseForgotten(state)
      await etcd?.refuseOtherKeys(state, etcd.stored?.keyMarks)
      await unlockBox(box, state, view)
    },
    promoted: () => promoted(),
    demoted: () => roleChanged()
  }
  const store: ClusterStore = closed(
    await (sharing && etcd ? sharing.storeOn(etcd, start, state) : Store.open({ ...start, medium: local }))
  )
  await etcd?.noteUse(state)
  for (const { message } of unreadableSecrets(store.current, box)) log.error(message)
  await mkdir(files, { recursive: true })
  const { ours } = local
  // Controllers that share objects share these too.
  const records = (kind: string) => {
    const inFile = journalIn(join(state, `${kind}.journal`), ours)
    return etcd?.records.opener(kind, inFile) ?? inFile
  }
  const status = closed(await NodeStatus.open(records('node-status'), now, log))
  await status.catchUp(store.current)
  const events = closed(new Events({ ticks }))
  const boots = closed(await Boots.open(records('node-boots'), now, log))
  boots.catchUp(store.current)
  // At the commit, so that a node is never seen without its states, or with those of another.
  store.subscribe(changes => {
    status.follow(changes)
    boots.follow(changes)
  })
  const tokens = await Tokens.open(state, {
    now,
    lifetimeMs: auth.token_lifetime,
    nodeLifetimeMs: auth.node_token_lifetime,
    runningLifetimeMs: auth.running_token_lifetime,
    onNewKey: () => log.info('token.key is new: tokens issued before are void')
  })
  const passwordFile = adminPasswordFile(state)
  // `svcd serve` prints its path.
  if (users.length === 0) await ensureAdminPassword(passwordFile)
  const provenFile = join(state, 'logins.json')
  const logins = closed(new Logins({ users, adminPasswordFile: passwordFile, provenFile, now: ticks }))
  let told = 0
  const audit = closed(
    new Audit({
      file: join(state, 'audit.log'),
      machinesFile: join(state, 'audit-machines.log'),
      maxBytes: logging.audit_size,
      keep: logging.audit_keep,
      controller: etcd && config.controller.name,
      ...{ now, log, ours },
      told: line => events.note('audit', String(told++), () => line)
    })
  )
  let agreed: SharedServiceState | undefined
  let urgent: (changes: readonly Change[]) => void = () => undefined
  const model = new Model({
    store,
    ini,
    controllers: () => agreed?.controllers,
    now,
    box,
    audit: (actor, changes, kind) => {
      if (!isByMachine(actor)) urgent(changes)
      return audit.record(actor, changes, kind)
    }
  })
  // A setting changed over http ends when the ini's value changes, even if it is changed back later.
  const settle = async () => {
    if (store.isFollowing) return
    await etcd?.keepKeyMarks(state)
    await model.change(daemonActor, tx => putSettings(tx, ini, new Map()))
  }
  const settling = closed(
    new Background({
      work: settle,
      retryMs: { first: 1000, longest: 60_000 },
      failed: reason => log.warn(`the settings of the ini are not in force yet: ${reason}`)
    })
  )
  promoted = () => settling.wake()
  await settle()
  const followDebug = () => {
    log.level = model.cluster.debug ? 'debug' : logging.level
  }
  followDebug()
  store.subscribe(followDebug)
  store.subscribe(changes => warnOfRoles(roles, changes, log))
  store.subscribe(changes => {
    for (const warning of limitWarnings(changes)) log.warn(warning)
  })
  const templates = new Templates({ directory: templateDirectory, now: () => performance.now() })
  const catalog = closed(new FileCatalog(files))
  const hasFile = (name: string) => catalog.has(name)
  const lent = leases(config)
  const grants = new Grants(
    ticks,
    (node, address) => log.info(`node ${node} is granted its install script at ${address}`),
    booting.dynamic_nodes && lent ? (mac, address) => lent.has(mac, address, now()) : undefined
  )
  // Loaded on demand: off by default.
  const snmp = booting.snmp_detection ? await import('./services/snmp/detection.js') : undefined
  const detection = snmp && closed(new snmp.PortDetection({ model, log }))
  const handover = new Handover({
    ...{ model, now, ticks, log },
    takeover: booting.takeover,
    newNodes: booting.new_nodes
  })
  const trace = new Trace(model, boots, now)
  let copied: Copies | undefined
  const mayBeElsewhere = (file: string) =>
    http.urls.length > 1 && (etcd?.others.length ?? 0) > 0 && !copied?.isNowhere(file)
  const packBefore = etcd && new PreviousPack({ model, hasFile, mayBeElsewhere })
  const boot = new Boot({
    ...{ model, templates, status, grants, trace, handover, hasFile, mayBeElsewhere, packBefore, log },
    urls: ownFirst(config),
    manual: booting.manual,
    dynamicNodes: booting.dynamic_nodes,
    ...(detection ? { detection } : {})
  })
  const remote = new Remote({ state, sshKey: config.ssh.key, sshPort: config.ssh.port })
  const run = systemctlBy(work, command)
  const distribution = closed(new Distribution({ torrent, files, state, log, run }))
  const jobs = await Jobs.open({
    directory: join(state, 'jobs'),
    now,
    log,
    parallel: config.jobs.parallel,
    sharing: etcd && {
      controller: config.controller.name,
      open: memory => etcd.records.open('jobs', memory)
    },
    told: summary => events.note('job', summary.id, () => shownSummary(jobs.summary(summary.id) ?? summary))
  })
  closers.push(() => jobs.close(0))
  closed(work)
  const control = closed(
    new Control({
      ...{ config: config.control, model, jobs, log, ticks },
      acted: (...action) => audit.acted(...action)
    })
  )
  const questions = etcd && sharing?.questionsOf(etcd, config, tokens, now)
  const images = closed(
    await Images.open({
      ...{ config, model, jobs, status, remote, work, log, now, ticks },
      controllers: etcd && questions && sharing?.controllersOf(etcd, config, () => copied),
      torrents: names => distribution.wanted(names)
    })
  )
  store.subscribe(changes => images.follow(changes))
  promoted = () => {
    // The previous leader may have died between a change of a node and its records. Never rejects.
    void status.catchUp(store.current)
    boots.promoted(store.current)
    settling.wake()
    images.promoted()
    roleChanged()
  }
  const copies =
    etcd &&
    questions &&
    (await sharing?.fileCopies({ config, model, images, log, now, ticks, store }, etcd, questions))
  const handing =
    etcd &&
    questions &&
    sharing?.handingOn({ store, shared: etcd }, tokens, questions, config, { now, ticks, log })
  const sameIni = etcd && sharing && closed(sharing.sameIni(etcd, config, tokens, log))
  copied = copies?.copies
  if (copies) closers.push(() => copies.close())
  const nodeFiles = closed(new NodeFiles({ model, url: http.url }))
  store.subscribe(changes => nodeFiles.changed(changes))
  const library = new Library({ templates, log })
  const install = new Install({
    ...{ model, templates, library, grants, trace, hasFile, packBefore },
    issueToken: (node, use) => tokens.issueNode(node, generationOf(model.view, node), use),
    hasFiles: node => nodeFiles.has(node),
    urls: ownFirst(config),
    tracker: torrent.tracker,
    insecure: !config.node.verify_certificate,
    rootpw: config.kickstart.rootpw,
    identity: config.image.identity,
    foreign: ofMachine,
    roles,
    began: (node, imagefile) => images.installing.began(node, imagefile)
  })
  agreed = etcd && (await sharing?.sharedServices(etcd, config, log, now))
  if (agreed) closed(agreed)
  const services = closed(new Services({ config, model, log, now, run, shared: agreed }))
  roleChanged = () => services.roleChanged()
  // The author of another controller's change is unknown here.
  store.subscribe(changes => services.changed(changes, false))
  urgent = changes => services.changed(changes)
  services.start()
  const disk = closed(await DiskSpace.open([state, files], monitor.disk_free))
  const loop = closed(new LoopDelay(monitor.loop_delay))
  const svcd = [
    () => {
      const { ok, reason } = store.health
      if (!ok || !etcd) return { ok, reason }
      const { role } = etcd.standing
      if (role === 'unknown') return { ok, reason: 'it is not known whether this svcd still writes' }
      return { ok, reason: role === 'primary' ? role : `standby: ${store.following}` }
    },
    () => status.health,
    () => boots.health,
    () => audit.health,
    () => disk.condition,
    () => copied?.condition,
    () => packBefore?.condition,
    () => handing?.condition,
    () => (etcd?.namesake ? { ok: false, reason: etcd.namesake } : undefined),
    () => sameIni?.condition,
    () => loop.condition,
    () => queueCondition(jobs, monitor.queue)
  ]
  const parts = { svcd, boot: [() => handover.condition] }
  const health = closed(new Health({ ...parts, ...distribution.conditions, ...services.conditions }, now))
  const metrics = new Metrics({
    now,
    nodes: () => model.view.names('node'),
    state: name => status.state(name),
    stale: () => findStaleSliced(model, boots),
    jobs: () => jobs.records().map(({ state }) => state),
    services: () =>
      Object.entries(health.all()).map(([name, { status }]) => [name, status === 'ok'] as const),
    applies: () =>
      (['dhcp', 'dns'] as const).flatMap(name => {
        const service = services.of(name)
        return service ? [[name, service.applies] as const] : []
      }),
    controllers: () =>
      etcd && { standing: etcd.standing, others: etcd.others, gone: agreed?.gone.length ?? 0 },
    loopDelayMs: () => loop.meanMs
  })
  store.subscribe((changes, more) => metrics.committed(changes.length, more))
  const overview = new Overview({ model, status, boots }, events)
  // Before the events: their listeners then load the new state.
  store.subscribe(changes => overview.follow(changes))
  connectEvents(events, { model, status, boots, health, subscribe: listener => store.subscribe(listener) })
  const known = () => agreed?.controllers.map(({ name }) => name) ?? []
  const audits = etcd && questions && sharing?.auditLogs(audit, etcd, config, questions, known)
  return {
    ...{ config, model, status, boots, trace, health, metrics, events, overview, logins, tokens },
    audit: audits?.logs ?? audit,
    record: audit.record.bind(audit),
    ...{ control, boot, handover, install, library, nodeFiles, jobs, images, services, leases: lent },
    ...(etcd && agreed ? { shared: etcd, agreed } : {}),
    digests: sameIni?.own ?? {},
    between: {
      ...(handing ? { handedOnFor: handing.handedOnFor, elsewhere: handing.elsewhere } : {}),
      routes: [...(copies?.routes ?? []), ...(audits?.routes ?? [])]
    }
  }
}
