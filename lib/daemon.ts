import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import type { Parts } from './api/context.js'
import { shownSummary } from './api/jobs.js'
import { checkParam } from './api/params.js'
import { routes } from './api/routes.js'
import { authorize, type Caller, largestBody } from './auth/access.js'
import { adminPasswordFile, ensureAdminPassword, Logins } from './auth/logins.js'
import { ProgramTokens } from './auth/program-tokens.js'
import { Tokens } from './auth/tokens.js'
import { refuseHalfRestored } from './backup/state-names.js'
import { backUpState } from './backup/stored-files.js'
import { Background } from './base/background.js'
import { createLog, type Log } from './base/log.js'
import { Boot } from './boot/boot.js'
import { FileCatalog } from './boot/file-catalog.js'
import { BootTree } from './boot/grub/tree.js'
import { GrubConfigs } from './boot/grub-configs.js'
import { Handover } from './boot/handover.js'
import { Grants, Install } from './boot/install.js'
import { Library } from './boot/library.js'
import { NodeFiles } from './boot/node-files.js'
import { PreviousPack } from './boot/previous-pack.js'
import { warnOfRoles } from './boot/roles.js'
import { Trace } from './boot/trace.js'
import { type Base, type PeersModule, type PeersStart, Register, type StartedPeers } from './composition.js'
import { ownFirst } from './config/reachability.js'
import type { Config } from './config/types.js'
import { Consoles } from './consoles/consoles.js'
import { Control } from './control/control.js'
import { realFiles } from './disk/steps.js'
import type { RootHelper } from './helper/commands.js'
import { helperSettingsOf } from './helper/directories.js'
import { localHelper } from './helper/local.js'
import { systemctlBy } from './helper/start.js'
import { Remote } from './helper/transfer/remote.js'
import { connectionLimits } from './http/admission/limits.js'
import { Certificate } from './http/certificate.js'
import { HttpServer } from './http/server.js'
import { openIdentity } from './identity/identity.js'
import { Images } from './image/images.js'
import { Notes } from './image/notes.js'
import { Distribution } from './image/torrent/distribution.js'
import { ofMachine } from './image/transfers.js'
import { Inventories } from './inventory/inventories.js'
import { differenceText, OddNodes } from './inventory/odd.js'
import { Jobs } from './jobs/jobs.js'
import { daemonActor, Model, storeOptions } from './model/model.js'
import { secretBoxOf, unlockBox, unreadableSecrets } from './model/secrets.js'
import { iniSettings, putSettings } from './model/settings.js'
import type { Change, ClusterStore } from './model/stored.js'
import { generationOf } from './model/types/node.js'
import { limitWarnings } from './model/warnings.js'
import { Audit, isByMachine } from './monitor/audit.js'
import { Boots } from './monitor/boots.js'
import { Events } from './monitor/events.js'
import { type Condition, DiskSpace, Health, LoopDelay, queueCondition } from './monitor/health.js'
import { Metrics } from './monitor/metrics.js'
import { NodeStatus } from './monitor/node-status.js'
import { connectEvents, Overview } from './monitor/overview.js'
import { findStaleSliced, isRun } from './monitor/stale.js'
import { Rehearsals } from './rehearsal/rehearsals.js'
import { serviceNames } from './services/backends.js'
import { command } from './services/control.js'
import { leases, nextServerOf, Services, treeOptions } from './services/services.js'
import { openNotes } from './services/swap.js'
import { FileMedium } from './store/files/medium.js'
import { isLocal, type recordKinds } from './store/record-kinds.js'
import { RecordMap } from './store/record-map.js'
import type { OpenRecords } from './store/records.js'
import { Store } from './store/store.js'
import { Templates } from './template/templates.js'
import { readAuthorities } from './trust/authorities.js'
import { TrustKeys } from './trust/keys.js'
import { readRecord, Trust } from './trust/trust.js'
import { UnknownMachines } from './unknown/machines.js'
import { BmcScan } from './unknown/scan.js'
import { version } from './version.js'

/** A running daemon. */
export interface Daemon
  extends Pick<Parts, 'model' | 'boots' | 'jobs' | 'services' | 'images' | 'boot' | 'trust'> {
  readonly address: string
  readonly port: number
  /** Undefined without `[http] tls_certificate`. */
  readonly tlsPort: number | undefined
  readonly server: HttpServer<Caller>
  /** Stops accepting, lets requests under way finish for up to `graceMs`, flushes, unlocks. */
  close(graceMs: number): Promise<void>
}

/** How root's work is done, beside what all parts share. */
type DaemonBase = Base & { readonly work: RootHelper }

/** The wings for shared objects by `[store] medium`. A wing is a folder that can be deleted with its line. */
const wings: Readonly<Record<string, () => Promise<PeersModule>>> = {
  etcd: () => import('./peers/peers.js')
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
  const register = new Register()
  const base = { config, log, now, ticks: () => performance.now(), work, register }
  try {
    const { between, ...parts } = await buildParts(base)
    const { server, ...addresses } = await openServer(base, parts, between)
    const { model, boots, boot, jobs, services, images, trust } = parts
    return {
      ...{ ...addresses, server, model, boots, boot, jobs, services, images, trust },
      async close(graceMs) {
        // A request that waits for its job is answered before its connection is cut.
        await Promise.all([server.close(graceMs), jobs.close(graceMs / 2)])
        await register.close()
      }
    }
  } catch (error) {
    await register.close()
    throw error
  }
}

/** Opens the server, and announces this controller to the others. */
async function openServer(
  { config, log, now, register }: DaemonBase,
  parts: Parts,
  between: StartedPeers | undefined
) {
  const { tokens, programs, logins, model, metrics, trust } = parts
  const { front_files, listen, tls_certificate, tls_key: key } = config.http
  const standing = {
    ...{ tokens, programs },
    grantOf: logins.grantOf.bind(logins),
    groupOf: (node: string) => model.view.get('node', node)?.group,
    isTokenCurrent: (node: string, claims: { issuedAt: number; generation?: number; proof?: string }) =>
      model.isTokenCurrent(node, claims) && trust.takes(node, claims.proof)
  }
  const certificate = tls_certificate
    ? register.add(
        await Certificate.open(
          { certificate: tls_certificate, key, authorities: config.store.ca },
          { log, now, forNodes: config.http.urls.some(url => url.startsWith('https:')) }
        )
      )
    : undefined
  // With several controllers a node may reach another one, which has another certificate.
  if (certificate && config.http.urls.length === 1 && config.http.url.startsWith('https:')) {
    const renewed = () => {
      parts.boot.pin = certificate.pin
      // The configurations of GRUB hold it.
      parts.services.of('tftp')?.changed(false)
    }
    certificate.onChange = renewed
    renewed()
  }
  const server = new HttpServer<Caller>({
    ...between?.server,
    routes: [...routes(parts), ...(between?.routes ?? [])],
    authorize: (route, head) => authorize(standing, route, head),
    param: checkParam,
    visibleAnswer: (refusal, incoming) => parts.boot.refusalScript(refusal, incoming),
    maxBody: caller => largestBody(caller, config.http.max_body),
    isKnown: ({ kind }) => kind === 'user',
    trustedProxies: config.http.trusted_proxies,
    frontFiles: front_files === '' ? undefined : { directory: config.paths.files, location: front_files },
    onFinished: request => metrics.request(request),
    limits: connectionLimits(config.http),
    log
  })
  const { address, port } = await server.listen(listen.address, listen.port)
  log.info(`listening on ${address} port ${port}`)
  register.add(server, { close: () => server.close(0) })
  between?.announce(port)
  const tls =
    certificate &&
    (await server
      .listenTls(listen.address, config.http.tls_port, () => certificate.context)
      .catch((error: Error) => {
        throw Object.assign(error, { key: '[http] tls_port' })
      }))
  if (tls) log.info(`listening with TLS on ${tls.address} port ${tls.port}`)
  return { server, address, port, tlsPort: tls?.port }
}

/** Builds the parts, each from those before it. */
async function buildParts(base: DaemonBase): Promise<Parts & { readonly between: StartedPeers | undefined }> {
  const state = { ...base, ...(await openState(base)) }
  const nodes = { ...state, ...(await openNodes(state)) }
  const changing = { ...nodes, ...(await openModel(nodes)) }
  const booting = { ...changing, ...(await buildBoot(changing)) }
  const working = { ...booting, ...(await buildWork(booting)) }
  const between = await working.peers?.start(working)
  const install = buildInstall(working)
  const trust = await openTrust(working)
  const services = await buildServices(working, between)
  const monitor = await buildMonitor({ ...working, services, trust })
  const { audit, peers, detection } = working
  return {
    ...working,
    ...{ ...install, trust, services, ...monitor, between },
    audit: between?.audit ?? audit,
    unknown: {
      own: working.unknown,
      ...(between ? { others: between.unknown } : {}),
      ...(detection ? { ports: (macs: readonly string[]) => detection.places(macs) } : {})
    },
    record: audit.record.bind(audit),
    site: peers
  }
}

/** Opens the objects: those of this controller alone, or those that controllers share. */
async function openState(base: DaemonBase) {
  const { config, log, register } = base
  const { state, files } = config.paths
  const ini = iniSettings(config)
  await refuseHalfRestored(state)
  // Starts the disk thread while the state is read, so that the first change does not wait for it.
  realFiles.runSteps([]).catch(() => {})
  const box = await secretBoxOf(state)
  const options = {
    ...storeOptions(state, ini, box, version.service),
    log: (level: 'warn' | 'info' | 'error', message: string) => log[level](message)
  }
  const local = register.add(new FileMedium(options))
  const start: PeersStart = {
    ...options,
    backUp: (from, objects) => backUpState(state, from, version.service, objects),
    beforeFirstWrite: view => unlockBox(box, state, view)
  }
  const wing = await wings[config.store.medium]?.()
  if (!wing && config.store.medium !== 'files')
    throw new Error('this svcd has its objects in files alone: set [store] medium = files')
  const peers = await wing?.openPeers(base, local, start)
  const store = peers?.store ?? register.add(await Store.open({ ...start, medium: local }))
  register.connect(store)
  register.conditions.push(() => peers?.condition ?? store.health)
  for (const { message } of unreadableSecrets(store.current, box)) log.error(message)
  await mkdir(files, { recursive: true })
  const { ownershipCheck } = local
  /** Opens the records of a kind; controllers that share objects share those of the cluster. */
  const records =
    (kind: keyof typeof recordKinds): OpenRecords =>
    memory =>
      peers && !isLocal(kind)
        ? peers.records(kind, kind === 'jobs' ? undefined : async () => local.storedRecords(kind))(memory)
        : local.openRecords(kind, memory)
  return { ini, box, ours: ownershipCheck, peers, store, records }
}
type State = DaemonBase & Awaited<ReturnType<typeof openState>>

/** Records of nodes, whose names follow those of the objects. */
interface NodeRecords {
  readonly health?: Condition
  follow(changes: readonly Change[]): void
  /** Repairs names; never rejects. */
  catchUp(view: ClusterStore['current']): unknown
}

/** Repairs and adds records. They follow at the commit: no node is seen without its own, or with others. */
async function addNodeRecords<R extends NodeRecords>({ register, store }: State, records: R): Promise<R> {
  await records.catchUp(store.current)
  return register.add(records, {
    changes: changes => records.follow(changes),
    // The previous leader may have died between a change of a node and its records.
    role: { becameLeader: () => void records.catchUp(store.current) },
    condition: () => records.health
  })
}

/** Opens what nodes report, and the tokens and logins. */
async function openNodes(state: State) {
  const { config, log, now, ticks, register, records } = state
  const { auth, users, paths } = config
  const status = await addNodeRecords(state, await NodeStatus.open(records('node-status'), now, log))
  const events = register.add(new Events({ ticks }))
  const boots = await addNodeRecords(state, await Boots.open(records('node-boots'), now))
  const inventories = await addNodeRecords(state, await Inventories.open(records('node-inventory'), now))
  const tokens = await Tokens.open(paths.state, {
    now,
    lifetimeMs: auth.token_lifetime,
    nodeLifetimeMs: auth.node_token_lifetime,
    runningLifetimeMs: auth.running_token_lifetime,
    onNewKey: () => log.info('token.key is new: tokens issued before are void')
  })
  const programs = register.add(await ProgramTokens.open(records('tokens'), now))
  const passwordFile = adminPasswordFile(paths.state)
  // `svcd serve` prints its path.
  if (users.length === 0) await ensureAdminPassword(passwordFile)
  const provenFile = join(paths.state, 'logins.json')
  const { directory, oidc } = await openIdentity(config, { log, now, ticks, key: tokens.keyFor('oidc') })
  const logins = register.add(
    new Logins({
      ...{ users, adminPasswordFile: passwordFile, knownNetworksFile: provenFile, now: ticks },
      ...(directory ? { directory } : {}),
      sources: oidc ? ['oidc'] : []
    })
  )
  const trustKeys = new TrustKeys(purpose => tokens.keyFor(purpose))
  return { status, events, boots, inventories, tokens, programs, logins, oidc, trustKeys }
}
type Nodes = State & Awaited<ReturnType<typeof openNodes>>

/** Opens the model and its audit log, and puts the settings of the ini in force. */
async function openModel(nodes: Nodes) {
  const { config, log, now, register, store, peers, ini, box, ours, events } = nodes
  const { paths, log: logging } = config
  let told = 0
  const audit = new Audit({
    file: join(paths.state, 'audit.log'),
    machinesFile: join(paths.state, 'audit-machines.log'),
    maxBytes: logging.audit_size,
    keep: logging.audit_keep,
    controller: peers && config.controller.name,
    ...{ now, log, ownershipCheck: ours },
    onLine: line => events.notify('audit', String(told++), () => line)
  })
  register.add(audit, { condition: () => audit.health })
  const model = new Model({
    ...{ store, ini, now, box },
    controllers: () => peers?.controllers,
    audit: (actor, changes, kind) => {
      if (!isByMachine(actor)) register.requested(changes)
      return audit.record(actor, changes, kind)
    }
  })
  // A setting changed over http ends when the ini's value changes, even if it is changed back later.
  const settle = async () => {
    if (model.isReadOnly) return
    await peers?.keepKeys()
    await model.change(daemonActor, tx => putSettings(tx, ini, new Map()))
  }
  const settling = new Background({
    work: settle,
    retryMs: { first: 1000, longest: 60_000 },
    onFailure: reason => log.warn(`the settings of the ini are not in force yet: ${reason}`)
  })
  register.add(settling, { role: { becameLeader: () => settling.wake() } })
  await settle()
  const followDebug = () => {
    log.level = model.cluster.debug ? 'debug' : logging.level
  }
  followDebug()
  store.subscribe(followDebug)
  store.subscribe(changes => warnOfRoles(paths.roles, changes, log))
  store.subscribe(changes => {
    for (const warning of limitWarnings(changes)) log.warn(warning)
  })
  return { audit, model }
}
type Changing = Nodes & Awaited<ReturnType<typeof openModel>>

/** Builds what answers a machine that boots. */
async function buildBoot(changing: Changing) {
  const { config, log, now, ticks, register, peers, status, boots, model, events, trustKeys } = changing
  const { boot: booting, paths } = config
  const templates = new Templates({ directory: paths.templates, now: ticks })
  const catalog = register.add(new FileCatalog(paths.files))
  const hasFile = (name: string) => catalog.has(name)
  const lent = leases(config)
  const grants = new Grants(
    ticks,
    (node, address) => log.info(`node ${node} is granted its install script at ${address}`),
    booting.dynamic_nodes && lent ? (mac, address) => lent.has(mac, address, now()) : undefined
  )
  // Loaded on demand: off by default.
  const snmp = booting.snmp_detection ? await import('./services/snmp/detection.js') : undefined
  const detection = snmp && register.add(new snmp.PortDetection({ model, log }))
  const handover = new Handover({
    ...{ model, now, ticks, log },
    takeover: booting.takeover,
    newNodes: booting.new_nodes
  })
  const trace = new Trace(model, boots, now)
  const unknown = new UnknownMachines({
    ...{ log, now, ticks, ageMs: booting.unknown_age },
    model: booting.by_serial ? model : undefined,
    onNew: machine => events.notify('unknown', machine?.mac ?? '', () => machine ?? { more: true })
  })
  const mayBeElsewhere = (file: string) => peers?.mayHave(file) ?? false
  const packBefore = peers && new PreviousPack({ model, hasFile, mayBeOnPeer: mayBeElsewhere })
  register.conditions.push(() => packBefore?.condition)
  const boot = new Boot({
    ...{
      model,
      templates,
      status,
      grants,
      trace,
      handover,
      hasFile,
      mayBeOnPeer: mayBeElsewhere,
      previousPack: packBefore,
      unknown,
      log,
      trustKey: trustKeys.fingerprint
    },
    urls: ownFirst(config),
    manual: booting.manual,
    loader: booting.loader,
    dynamicNodes: booting.dynamic_nodes,
    ...(detection ? { detection } : {})
  })
  const grub = buildGrub(changing, boot)
  return {
    boot,
    grub,
    catalog,
    templates,
    hasFile,
    leases: lent,
    grants,
    handover,
    trace,
    packBefore,
    unknown,
    detection
  }
}
/** Builds what GRUB gets; undefined without a TFTP server. */
function buildGrub({ config, ticks, register, model }: Changing, boot: Boot) {
  if (config.tftp.server === 'none') return undefined
  const tree = register.add(new BootTree(treeOptions(config, ticks)))
  const grub = new GrubConfigs({
    ...{ boot, model, tree, server: nextServerOf(config) },
    manual: config.boot.manual !== 'none'
  })
  boot.grub = grub
  return grub
}
type Booting = Changing & Awaited<ReturnType<typeof buildBoot>>

/** Builds what works in the background: requests, power, images. */
async function buildWork(booting: Booting) {
  const { config, log, now, ticks, work, register, peers, store, records, status, events, audit, model } =
    booting
  const { boots, inventories } = booting
  const { state, files } = config.paths
  const remote = new Remote({ state, sshKey: config.ssh.key, sshPort: config.ssh.port })
  const run = systemctlBy(work, command)
  const distribution = register.add(new Distribution({ torrent: config.torrent, files, state, log, run }))
  const jobs = await Jobs.open({
    open: records('jobs'),
    controller: peers && config.controller.name,
    ...{ now, log, parallel: config.jobs.parallel },
    told: summary => events.notify('job', summary.id, () => shownSummary(jobs.summary(summary.id) ?? summary))
  })
  register.add(jobs, { role: jobs, close: () => jobs.close(0) })
  if (store.role.isLeader) jobs.becameLeader()
  register.add(work)
  const control = register.add(
    new Control({
      ...{ config: config.control, model, jobs, log, ticks, now },
      onAction: (...action) => audit.recordAction(...action)
    })
  )
  const found = booting.unknown
  const scan = new BmcScan({
    ...{ model, jobs, config: config.control, ticks },
    found: machine => found.addScanned(machine)
  })
  const consoles = register.add(
    new Consoles({ config, model, log, onAction: (...action) => audit.recordAction(...action) })
  )
  const images = await Images.open({
    ...{ config, model, jobs, status, remote, work, log, now, ticks },
    notes: await Notes.open(records('work')),
    controllers: peers?.images,
    torrents: names => distribution.wanted(names),
    // Settings of nodes may have changed since they booted, and their roots must stay.
    mayBeStreamed: pack => model.view.get('pack', pack)?.roots !== undefined && isRun(boots, pack)
  })
  register.add(images, { changes: changes => images.follow(changes), role: images })
  const inventoryOf = (node: string) => inventories.snapshot(node)?.().inventory
  const rehearsals = await Rehearsals.open({ config, model, jobs, work, log, now, inventoryOf })
  return { run, distribution, jobs, control, consoles, images, scan, rehearsals }
}
type Working = Booting & Awaited<ReturnType<typeof buildWork>>

/** Builds the install script and the files of nodes. */
function buildInstall(working: Working) {
  const { config, log, register, model, templates, grants, trace, hasFile, packBefore } = working
  const { tokens, images } = working
  const nodeFiles = new NodeFiles({ model, url: config.http.url })
  register.add(nodeFiles, { changes: changes => nodeFiles.changed(changes) })
  const library = new Library({ templates, log })
  const install = new Install({
    ...{ model, templates, library, grants, trace, hasFile, previousPack: packBefore },
    issueToken: (node, use, proof) => tokens.issueNode(node, generationOf(model.view, node), use, proof),
    hasFiles: node => nodeFiles.has(node),
    urls: ownFirst(config),
    tracker: config.torrent.tracker,
    insecure: !config.node.verify_certificate,
    rootpw: config.kickstart.rootpw,
    identity: config.image.identity,
    foreign: ofMachine,
    roles: config.paths.roles,
    onInstall: (node, imagefile) => images.installing.began(node, imagefile)
  })
  return { nodeFiles, library, install }
}

/** Opens what machines proved of themselves. */
async function openTrust(working: Working) {
  const { config, log, now, records, model, audit, events, boot, trustKeys } = working
  let told = 0
  const trust = new Trust({
    ...{ model, now, keys: trustKeys, secureboot: config.trust.secureboot },
    records: await RecordMap.open(records('node-trust'), readRecord),
    authorities: await readAuthorities(config.trust.ek_ca),
    onVerdict: (node, from, { verdict, reason, time }, isNew) => {
      const actor = { who: `node ${node}`, from, mayTakeAddresses: false }
      const change = { type: 'trust', name: node, before: {}, after: { verdict, reason } }
      // Its health tells of a failure.
      audit.record(actor, [change], 'change').catch(() => undefined)
      if (!isNew) return
      if (verdict === 'bad') log.warn(`node ${node} is not trusted: ${reason}`)
      events.notify('trust', String(told++), () => ({ node, verdict, reason, time }))
    }
  })
  trust.measured = node => boot.measured(node)
  return addNodeRecords(working, trust)
}

/** How often svcd looks whether the kernels in the TFTP tree are those of the files directory. */
const PLACE_MS = 60_000

/** Starts DHCP, DNS, TFTP and consoles. */
async function buildServices(working: Working, between?: StartedPeers) {
  const { config, model, log, now, run, register, records, grub, catalog } = working
  const notes = await openNotes(records('services'))
  const services = new Services({
    ...{ config, model, log, now, notes, run, shared: between?.services },
    tree: grub && {
      prepare: async () => void (await grub.place()),
      configurations: () => grub.configurations(),
      inForce: ({ files }) => grub.inForce(files)
    }
  })
  // A kernel may be written over in place, or come from another controller.
  const placing = new Background({
    work: async () => {
      if (await grub?.place()) services.of('tftp')?.changed(false)
    },
    everyMs: PLACE_MS
  })
  if (grub) {
    register.add(placing)
    catalog.onChange = () => placing.wake()
  }
  const roleChanged = () => services.roleChanged()
  register.add(services, {
    // The author of another controller's change is unknown here.
    changes: changes => services.changed(changes, false),
    requested: changes => services.changed(changes),
    role: { becameLeader: roleChanged, steppedDown: roleChanged }
  })
  services.start()
  return services
}

/** Compares the hardware of nodes, and reports its changes. */
function buildHardware({ model, inventories, events, log, now, register }: Working) {
  const odd = new OddNodes({
    groups: () => model.view.names('group'),
    nodesOf: group => model.view.index.members(group)?.all.values ?? [],
    groupOf: node => model.view.get('node', node)?.group,
    factsOf: node => inventories.factsOf(node)
  })
  register.add(odd, { changes: changes => odd.follow(changes) })
  inventories.onChange = node => odd.changed(node)
  let reported = 0
  const onHardware = (node: string, changes: readonly string[]) => {
    for (const change of changes) log.warn(change)
    const time = new Date(now()).toISOString()
    events.notify('hardware', String(reported++), () => ({ node, changes, time }))
  }
  return { odd, onHardware, oddOf: (node: string) => odd.of(node).map(differenceText).join('\n') }
}

/** Builds what shows how svcd, its services and the nodes are. */
async function buildMonitor(parts: Working & { readonly services: Services; readonly trust: Trust }) {
  const { config, now, register, store, peers, status, boots, events, model } = parts
  const { jobs, services, handover, distribution, trust } = parts
  const { paths, monitor } = config
  const disk = await DiskSpace.open([paths.state, paths.files], monitor.disk_free)
  register.add(disk, { condition: () => disk.condition })
  const loop = new LoopDelay(monitor.loop_delay)
  register.add(loop, { condition: () => loop.condition })
  register.conditions.push(() => queueCondition(jobs, monitor.queue))
  const own = { svcd: register.conditions, boot: [() => handover.condition] }
  const health = register.add(new Health({ ...own, ...distribution.conditions, ...services.conditions }, now))
  const { odd, onHardware, oddOf } = buildHardware(parts)
  const metrics = new Metrics({
    now,
    nodes: () => model.view.names('node'),
    state: name => status.state(name),
    stale: () => findStaleSliced(model, boots),
    jobs: () => jobs.records().map(({ state }) => state),
    services: () =>
      Object.entries(health.all()).map(([name, { status }]) => [name, status === 'ok'] as const),
    applies: () =>
      serviceNames.flatMap(name => {
        const service = services.of(name)
        return service ? [[name, service.applies] as const] : []
      }),
    odd: () => odd.counts(),
    trust: () => trust.counts(),
    site: peers,
    loopDelayMs: () => loop.meanMs
  })
  store.subscribe((changes, more) => metrics.committed(changes.length, more))
  const trustOf = (node: string) => trust.shortOf(node)
  const overview = new Overview({ model, status, boots, oddOf, trustOf }, events)
  // Before the events: their listeners then load the new state.
  store.subscribe(changes => overview.follow(changes))
  const subscribe = store.subscribe.bind(store)
  connectEvents(events, { model, status, boots, health, odd, oddOf, trustOf, subscribe })
  return { health, metrics, overview, odd, onHardware }
}
