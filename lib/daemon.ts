import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import type { Parts } from './api/context.js'
import { checkParam } from './api/params.js'
import { routes } from './api/routes.js'
import { authorize, type Caller, largestBody } from './auth/access.js'
import { adminPasswordFile, ensureAdminPassword } from './auth/admin-password.js'
import { Logins } from './auth/logins.js'
import { Tokens } from './auth/tokens.js'
import { Boot } from './boot/boot.js'
import { FileCatalog } from './boot/files.js'
import { Grants } from './boot/grants.js'
import { Install } from './boot/install.js'
import type { Config } from './config/types.js'
import { unavailable } from './errors.js'
import { HttpServer } from './http/server.js'
import { Images } from './image/images.js'
import { Distribution } from './image/torrent/distribution.js'
import { Remote } from './image/transfer/remote.js'
import { Jobs, JobsUnavailableError } from './jobs/jobs.js'
import { createLog, type Log } from './log.js'
import { Model, theDaemon } from './model/model.js'
import { checkState } from './model/rules.js'
import { openSecretBox } from './model/secrets.js'
import { putSettings } from './model/settings.js'
import type { RevokedDoc } from './model/types/node.js'
import { createIndex, kinds } from './model/types.js'
import type { ClusterSettings, ClusterStore, View } from './model/view.js'
import { Audit } from './monitor/audit.js'
import { DiskSpace } from './monitor/disk-space.js'
import { Health } from './monitor/health.js'
import { LoopDelay } from './monitor/loop-delay.js'
import { NodeStatus } from './monitor/node-status.js'
import { queueCondition } from './monitor/queue.js'
import { leases, Services } from './services/services.js'
import { StoreError } from './store/errors.js'
import { Store } from './store/store.js'
import type { Change } from './store/types.js'
import { TemplateError } from './template/errors.js'
import { Templates } from './template/templates.js'

/** A running daemon. */
export interface Daemon {
  readonly address: string
  readonly port: number
  readonly server: HttpServer<Caller>
  readonly jobs: Jobs
  readonly services: Services
  readonly images: Images
  /** Stops accepting, lets requests under way finish for up to `graceMs`, flushes, unlocks. */
  close(graceMs: number): Promise<void>
}

/** What the cluster's objects inherit from the ini, and which address the controller has. */
export function clusterSettings(config: Config): ClusterSettings {
  return { ...config.cluster, controller: config.controller, servesDns: config.dns.server !== 'none' }
}

/** How the state directory of a configuration is read: by the daemon and by `svcd check`. */
export function storeOptions(config: Config) {
  // An ini that gives the controller a device's address must not keep the objects from being loaded: `svcd check`
  // warns of it, and nobody else is given that address.
  const settings = { ...clusterSettings(config), controller: { name: config.controller.name, address: '' } }
  return {
    directory: config.paths.state,
    kinds,
    createIndex,
    verify: (view: View) => checkState(view, settings)
  }
}

/**
 * Builds the parts from a configuration and starts them (architecture, "The house"). Throws LoadError,
 * LockedError, TemplateError or an Error of the operating system; nothing is left running then.
 */
export async function startDaemon(config: Config, log: Log = createLog(config.log.level)): Promise<Daemon> {
  const closers: (() => Promise<void> | void)[] = []
  const close = async () => {
    for (const closer of closers.reverse()) await closer()
  }
  try {
    const parts = await buildParts(config, log, closers)
    const server = new HttpServer<Caller>({
      routes: routes(parts),
      authorize: (route, head) =>
        authorize(
          {
            tokens: parts.tokens,
            roleOf: user => parts.logins.roleOf(user),
            standsFor: (node, issuedAt) => standsFor(parts.model.view, node, issuedAt)
          },
          route,
          head
        ),
      param: checkParam,
      maxBody: caller => largestBody(caller, config.http.max_body),
      trustedProxies: config.http.trusted_proxies,
      log,
      mapError
    })
    const { address, port } = await server.listen(config.http.listen.address, config.http.listen.port)
    log.info(`listening on ${address} port ${port}`)
    return {
      address,
      port,
      server,
      jobs: parts.jobs,
      services: parts.services,
      images: parts.images,
      close: async graceMs => {
        // A request that waits for its job is answered before its connection is cut.
        await Promise.all([server.close(graceMs), parts.jobs.close(graceMs / 2)])
        await close()
      }
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function buildParts(config: Config, log: Log, closers: (() => Promise<void> | void)[]): Promise<Parts> {
  const now = Date.now
  const { state, templates: templateDirectory, files } = config.paths
  const store: ClusterStore = await Store.open({
    ...storeOptions(config),
    log: (level, message) => log[level](message)
  })
  closers.push(() => store.close())
  await mkdir(files, { recursive: true })
  const status = await NodeStatus.open(join(state, 'node-status.journal'), now, log)
  closers.push(() => status.close())
  await status.catchUp(
    node => store.current.get('node', node) !== undefined,
    node => store.current.get('revoked', node)?.renamed
  )
  // At the commit, so that nobody sees a node without its states or a new one with those of another.
  closers.push(store.subscribe(changes => follow(status, changes)))
  const tokens = await Tokens.open(state, {
    now,
    lifetimeMs: config.auth.token_lifetime,
    nodeLifetimeMs: config.auth.node_token_lifetime,
    onNewKey: () => log.info('token.key is new: tokens issued before are void')
  })
  const adminPassword = adminPasswordFile(state)
  if (config.users.length === 0 && (await ensureAdminPassword(adminPassword)))
    log.info(`the password of user admin is in ${adminPassword}`)
  const logins = new Logins({ users: config.users, adminPasswordFile: adminPassword, now })
  const audit = new Audit({
    file: join(state, 'audit.log'),
    maxBytes: config.log.audit_size,
    keep: config.log.audit_keep,
    now
  })
  const model = new Model({
    store,
    ini: clusterSettings(config),
    now,
    box: await openSecretBox(state, store.current),
    audit: (actor, changes, kind) => audit.record(actor, changes, kind)
  })
  // A setting changed over http ends when the ini's value changes, also when it is changed back later.
  await model.change(theDaemon, tx => putSettings(tx, model.ini, new Map()))
  const followDebug = () => {
    log.level = model.cluster.debug ? 'debug' : config.log.level
  }
  followDebug()
  closers.push(store.subscribe(followDebug))
  const templates = new Templates({ directory: templateDirectory, now: () => performance.now() })
  const catalog = new FileCatalog(files)
  closers.push(() => catalog.close())
  const hasFile = (name: string) => catalog.has(name)
  const grants = new Grants(
    now,
    (node, address) => log.info(`node ${node} is granted its install script at ${address}`),
    config.boot.dynamic_nodes ? leases(config, now) : undefined
  )
  const detection = config.boot.snmp_detection ? await portDetection(model, log) : undefined
  closers.push(() => detection?.close())
  const boot = new Boot({
    model,
    templates,
    status,
    grants,
    hasFile,
    url: config.http.url,
    manual: config.boot.manual,
    dynamicNodes: config.boot.dynamic_nodes,
    ...(detection ? { detection } : {}),
    log
  })
  const remote = new Remote({ state, sshKey: config.ssh.key, sshPort: config.ssh.port })
  const distribution = new Distribution({ torrent: config.torrent, files, state, log })
  closers.push(() => distribution.close())
  const jobs = await Jobs.open({ directory: join(state, 'jobs'), now, log, parallel: config.jobs.parallel })
  closers.push(() => jobs.close(0))
  const images = await Images.open({
    config,
    model,
    jobs,
    status,
    remote,
    log,
    now,
    torrents: names => distribution.wanted(names)
  })
  closers.push(() => images.close())
  closers.push(store.subscribe(changes => followImages(images, remote, changes)))
  const install = new Install({
    model,
    templates,
    grants,
    hasFile,
    issueToken: node => tokens.issueNode(node),
    url: config.http.url,
    tracker: config.torrent.tracker,
    insecure: !config.node.verify_certificate,
    rootpw: config.kickstart.rootpw,
    began: (node, imagefile) => images.installing.began(node, imagefile)
  })
  const services = new Services({ config, model, log, now })
  closers.push(() => services.close())
  closers.push(store.subscribe(changes => services.changed(changes)))
  services.start()
  const { disk_free, loop_delay, queue } = config.monitor
  const disk = await DiskSpace.open([state, files], disk_free)
  const loop = new LoopDelay(loop_delay)
  closers.push(() => {
    disk.close()
    loop.close()
  })
  const svcd = [
    () => store.health,
    () => status.health,
    () => audit.health,
    () => disk.condition,
    () => loop.condition,
    () => queueCondition(jobs, queue)
  ]
  const health = new Health(
    {
      svcd,
      // A service that the ini turns off is none: 404.
      ...(config.torrent.tracker === '' ? {} : { tracker: [() => distribution.tracker] }),
      ...(config.torrent.tracker === '' || config.torrent.seeder === 'none'
        ? {}
        : { seeder: [() => distribution.seeder] }),
      ...services.conditions
    },
    now
  )
  closers.push(() => health.close())
  return { config, model, status, health, logins, tokens, boot, install, jobs, images, services }
}

/** What it is made of is loaded where it is used: off is the default. */
async function portDetection(model: Model, log: Log) {
  const { PortDetection } = await import('./services/snmp/detection.js')
  return new PortDetection({ model, log })
}

/** The states of a node that was renamed or is gone follow it, or go with it. */
function follow(status: NodeStatus, changes: readonly Change[]): void {
  for (const { type, name, after } of changes) {
    if (type !== 'revoked' || !after) continue
    const { renamed } = after as RevokedDoc
    void (renamed === undefined ? status.drop(name) : status.rename(name, renamed))
  }
}

/** Packs that nobody names any more are swept, and the host keys of a name go with it. */
function followImages(images: Images, remote: Remote, changes: readonly Change[]): void {
  if (changes.some(({ type }) => ['osimage', 'osimagetag', 'pack'].includes(type))) images.changed()
  for (const { type, name, after } of changes)
    if (type === 'revoked' && after) void remote.forget(name).catch(() => {})
}

/** Whether a token issued at that time (ms) was issued to the node that has this name now (rules 4.8). */
function standsFor(view: View, node: string, issuedAt: number): boolean {
  return view.get('node', node) !== undefined && issuedAt > (view.get('revoked', node)?.at ?? -1)
}

function mapError(error: unknown) {
  if (error instanceof StoreError || error instanceof JobsUnavailableError) return unavailable(error.message)
  if (error instanceof TemplateError) return unavailable(`template ${error.message}`)
  return undefined
}
