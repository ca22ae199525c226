import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { refuseHalfRestored } from '../backup/state-names.js'
import { runSliced } from '../base/concurrency.js'
import { didYouMean } from '../base/did-you-mean.js'
import type { Problem } from '../base/errors.js'
import { fileFindings } from '../boot/node-files.js'
import { missingRoles } from '../boot/roles.js'
import { clocksApart, SLACK_MS } from '../client/controllers.js'
import { keys } from '../config/keys.js'
import { frontWarnings, reachability, userWarnings } from '../config/reachability.js'
import { type Config, locationOf } from '../config/types.js'
import { isWildcard } from '../config/values.js'
import { hasDirectory, hasFile } from '../disk/file.js'
import { CertificateError, expiry, isFor, lacksRoot, readPair } from '../http/certificate.js'
import { identityFindings } from '../identity/identity.js'
import { imageFindings } from '../image/findings.js'
import { ownerText } from '../model/cluster-index.js'
import { Model, storeOptions } from '../model/model.js'
import { controllerAddresses } from '../model/networks.js'
import { SecretBox } from '../model/secret-box.js'
import { missingKey, secretBoxOf, unreadableSecrets } from '../model/secrets.js'
import { effectiveSettings, iniSettings, settingNames, settingOrigin } from '../model/settings.js'
import type { ClusterSettings, NamedController, View } from '../model/stored.js'
import type { SwitchDoc } from '../model/types/switch.js'
import { nameWarnings, stateWarnings } from '../model/warnings.js'
import { installHint, locate } from '../program/program.js'
import { capture } from '../services/capture.js'
import { foreignNameWarnings, ownedZones } from '../services/dns/data.js'
import { programsOf, signedLoaders } from '../services/services.js'
import { LoadError } from '../store/errors.js'
import type { EtcdMedium } from '../store/etcd/medium.js'
import { objectFile } from '../store/files/listing.js'
import { FileMedium } from '../store/files/medium.js'
import type { StoredState } from '../store/medium.js'
import { LAYOUT, startOf, VERSION } from '../store/start.js'
import { Store } from '../store/store.js'
import { Templates } from '../template/templates.js'
import { readAuthorities } from '../trust/authorities.js'
import { version } from '../version.js'

/** Returns every problem and warning of templates, state and ini (rules 7.7). `now`: ms since 1970. */
export async function checkAll(config: Config, now = Date.now()) {
  const templates = new Templates({ directory: config.paths.templates }).check()
  const damaged: Problem[] = []
  const box = await secretBoxOf(config.paths.state).catch((error: Error) => {
    const file = join(config.paths.state, 'secret.key')
    damaged.push({ file, message: error.message.replace(`${file} `, '') })
    return new SecretBox()
  })
  const { state: directory } = config.paths
  await refuseHalfRestored(directory).catch(({ message }: Error) =>
    damaged.push({ file: directory, message: message.replace(/^\S+: /, '') })
  )
  const { etcd, problems: inEtcd } = await etcdFindings(config)
  const firmware = missingFirmware(config)
  const tls = await tlsFindings(config, now)
  const identity = await identityFindings(config)
  const machine = [
    ...[...(await missingOnMachine(config)), ...firmware.problems, ...tls.problems],
    ...[...identity.problems, ...inEtcd]
  ]
  const stored = new StoredCheck(config, now, box, etcd)
  // Nothing is read if the files for etcd are unusable.
  const state = inEtcd.length > 0 ? [] : await stored.inspect()
  await stored.inspectNames()
  return {
    problems: [
      ...[...machine.map(message => placed(config, message)), ...damaged, ...stored.problems],
      ...templates.map(({ file, line, reason }) =>
        file === config.paths.templates
          ? placed(config, `[paths] templates: ${reason}`)
          : { file: join(config.paths.templates, file), line, message: reason }
      ),
      ...state
    ],
    warnings: [
      ...[...reachability(config, stored.networks), ...frontWarnings(config), ...userWarnings(config)],
      ...[...firmware.warnings, ...tls.warnings, ...identity.warnings, ...stored.warnings]
    ],
    changedSettings: stored.notes
  }
}

/** A problem at the key of the ini that its message names. */
const placed = (config: Config, message: string): Problem => ({ ...locationOf(config, message), message })

/** The check of the stored objects, in files or in etcd. */
class StoredCheck {
  readonly problems: Problem[] = []
  readonly warnings: string[] = []
  readonly notes: string[] = []
  readonly networks: string[] = []
  readonly #ini: ClusterSettings
  #model: Model | undefined
  #others: readonly NamedController[] = []

  constructor(
    private readonly config: Config,
    private readonly now: number,
    private readonly box: SecretBox,
    private readonly etcd: EtcdMedium | undefined
  ) {
    this.#ini = iniSettings(config)
  }

  /** Reads and verifies the state; returns the problems of reading it. */
  async inspect(): Promise<Problem[]> {
    const { etcd, warnings } = this
    const { state } = this.config.paths
    const silent = etcd?.silentEndpoints()
    try {
      const options = storeOptions(state, this.#ini, this.box, version.service)
      const medium = etcd ?? new FileMedium(options)
      const log = (_: string, message: string) => warnings.push(message)
      // Like a start, which goes on without damaged objects.
      const start = etcd ? { ...options, onDamage: () => undefined } : options
      const verify = (view: View) => {
        this.#verify(view)
        return options.verify(view)
      }
      const found = await Store.inspect({ ...start, medium, verify, log })
      if (!etcd) return found
      await etcd.refuseEmptyStore(state)
      return [...found, ...(await this.#etcdProblems(etcd, await silent))]
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      if (etcd && !(error instanceof LoadError)) return [placed(this.config, `[store] endpoints: ${message}`)]
      if (code !== 'EACCES') throw error
      return [{ file: state, message: `cannot be read: ${message}` }]
    } finally {
      warnings.push(...endpointWarnings(await silent))
      await etcd?.close()
    }
  }

  /** Checks what takes other programs: each file of each node, and the names in DNS. */
  async inspectNames(): Promise<void> {
    const { config } = this
    const model = this.#model
    if (!model) return
    this.problems.push(...this.#inState(await fileFindings(model, config.http.url)))
    if (config.dns.server === 'none') return
    const zones = await runSliced(ownedZones(capture(model.view, model.cluster)))
    this.warnings.push(...(await foreignNameWarnings(zones)))
  }

  async #etcdProblems(etcd: EtcdMedium, found: SilentEndpoints | undefined): Promise<Problem[]> {
    const full = found?.full
    const room = full
      ? [`[store] endpoints: nothing can be written: ${full.endpoint} has no room; ${full.reason}`]
      : []
    const { controllers } = await etcd.site(this.now)
    this.#others = controllers
    const clocks = controllers.flatMap(({ name, aheadMs = 0 }) =>
      name === this.config.controller.name || Math.abs(aheadMs) <= SLACK_MS
        ? []
        : [`[controller] name: ${clocksApart('this machine', `controller ${name}`, aheadMs)}`]
    )
    const keys = await keyFindings(etcd, this.config.paths.state)
    return [...[...room, ...clocks].map(message => placed(this.config, message)), ...keys]
  }

  #verify(view: View): void {
    const { config, box, warnings } = this
    for (const address of controllerAddresses(this.#ini).keys())
      for (const owner of view.index.addressOwners(address))
        warnings.push(
          `[controller] address: ${config.controller.address} belongs to ${ownerText(owner)} as well`
        )
    if (config.boot.snmp_detection && !view.names('switch').some(name => isAskable(view.get('switch', name))))
      warnings.push('[boot] snmp_detection: no switch has an address and a read community to ask it with')
    const users = (['group', 'node'] as const).flatMap(type =>
      view.names(type).map(name => [`${type} ${name}`, view.get(type, name) ?? {}] as const)
    )
    warnings.push(...missingRoles(config.paths.roles, users))
    warnings.push(...missingGroups(config, view), ...stateWarnings(view))
    const key = missingKey(config.paths.state, view)
    if (key) this.problems.push(key)
    else if (box.hasKey) this.problems.push(...this.#inState([...unreadableSecrets(view, box)]))
    this.notes.push(...changedSettings(view, this.#ini))
    this.#model = modelOf(view, this.#ini, box, this.now, () => this.#others)
    const { cluster } = this.#model
    const images = imageFindings(config, view, cluster)
    this.problems.push(
      ...images.onMachine.map(message => placed(this.config, message)),
      ...this.#inState(images.problems)
    )
    warnings.push(...images.warnings, ...nameWarnings(view, cluster))
    // A network without a prefix is reported as a problem already.
    for (const name of view.names('network')) {
      const cidr = view.get('network', name)?.network
      if (cidr !== undefined) this.networks.push(cidr)
    }
  }

  #inState(found: readonly { type: string; name: string; message: string }[]): Problem[] {
    return found.map(({ type, name, message }) => ({
      file: this.etcd?.place(type, name) ?? objectFile(this.config.paths.state, type, name),
      message
    }))
  }
}

type SilentEndpoints = Awaited<ReturnType<EtcdMedium['silentEndpoints']>>

/** Opens etcd if the ini names it, or returns the faults of its files. */
async function etcdFindings({ store }: Config): Promise<{ etcd?: EtcdMedium; problems: readonly string[] }> {
  if (store.medium !== 'etcd') return { problems: [] }
  const { EtcdFilesError, openEtcd } = await import('../store/etcd/open.js')
  try {
    return { etcd: await openEtcd(store), problems: [] }
  } catch (error) {
    if (!(error instanceof EtcdFilesError)) throw error
    return { problems: error.reasons }
  }
}

/** Warns of each silent endpoint; if none answers, that is a problem instead. */
function endpointWarnings(found?: SilentEndpoints): string[] {
  if (!found) return []
  const { silent, of } = found
  const answering = of - silent.length
  if (answering === 0) return []
  const others = answering > 1 ? 'the others do' : 'the other one does'
  const rest = silent.length > 1 ? `${answering} of ${of} ${answering > 1 ? 'do' : 'does'}` : others
  return silent.map(({ endpoint, reason }) => {
    // Mistaking the two ports is the usual slip.
    const hint = endpoint.endsWith(':2380') ? '; is this 2380, the port of members?' : ''
    return `[store] endpoints: ${endpoint} does not answer (${reason}); ${rest}${hint}`
  })
}

/** Whether a start would refuse the keys: they have to be those of the other controllers. */
async function keyFindings(etcd: EtcdMedium, state: string): Promise<Problem[]> {
  const isWritten = (await etcd.describeLeader()) !== ''
  try {
    await etcd.refuseOtherKeys(state, etcd.stored?.keyFingerprints, isWritten)
    return []
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    // Unreadable keys are reported already.
    return code === 'EACCES' ? [] : [{ file: state, message }]
  }
}

function modelOf(
  current: View,
  ini: ClusterSettings,
  box: SecretBox,
  now: number,
  controllers: () => readonly NamedController[]
): Model {
  const refuse = () => Promise.reject(new Error('svcd check changes nothing'))
  const store = { current, change: refuse, changeInSteps: refuse }
  return new Model({ store, ini, now: () => now, box, audit: async () => {}, controllers })
}

const isAskable = (doc: SwitchDoc | undefined) => doc?.ipaddress !== undefined && doc.read !== undefined

/** Returns warnings on roles that are limited to groups of nodes that do not exist (rules 5.2). */
function missingGroups({ users, auth }: Config, view: View): string[] {
  const given = [
    ...users.map(({ name, groups }) => [`[users] ${name}`, groups] as const),
    ...(['ldap_roles', 'oidc_roles'] as const).flatMap(key =>
      auth[key].map(({ grant }) => [`[auth] ${key}`, grant.groups] as const)
    )
  ]
  const names = view.names('group')
  return given.flatMap(([line, groups = []]) =>
    groups
      .filter(group => !view.get('group', group))
      .map(
        group => `${line}: there is no group ${group}${didYouMean(group, names)}: it reaches no node by it`
      )
  )
}

/** Things that the ini names and this machine lacks: nothing that depends on them can work. */
async function missingOnMachine(config: Config): Promise<string[]> {
  const { controller, boot, control, ssh, trust } = config
  const problems: string[] = []
  const own = Object.values(networkInterfaces()).flat()
  const isElsewhere = (address: string) =>
    !isWildcard(address) && !/^127\.|^::1$/.test(address) && !own.some(one => one?.address === address)
  const { listen } = config.http
  if (isElsewhere(listen.address))
    problems.push(`[http] listen: no interface of this machine has ${listen.address}`)
  // By default the controller's address is that of listen, which is reported already.
  if (isElsewhere(controller.address) && controller.address !== listen.address)
    problems.push(`[controller] address: no interface of this machine has ${controller.address}`)
  if (boot.ipxe_directory !== '' && !hasDirectory(boot.ipxe_directory))
    problems.push(`[boot] ipxe_directory: there is no directory ${boot.ipxe_directory}`)
  if (control.ca_file !== '' && !hasFile(control.ca_file))
    problems.push(`[control] ca_file: there is no file ${control.ca_file}`)
  await readAuthorities(trust.ek_ca).catch(({ message }: Error) => problems.push(`[trust] ek_ca: ${message}`))
  if (ssh.key !== '' && !hasFile(ssh.key))
    problems.push(
      `[ssh] key: there is no file ${ssh.key}; put the private key there, or leave it empty: svcd makes one`
    )
  for (const { key, from, install } of config.tftp.server === 'none' ? [] : signedLoaders(config))
    if (install && !hasFile(from)) problems.push(`[tftp] ${key}: there is no file ${from}; ${install}`)
  for (const { key, program, usualFor } of programsOf(config))
    if ((await locate(program)) === undefined) {
      const install = `install it${installHint(program).replace(/: (.*)/, ' ($1)')}`
      const why = usualFor && `, which is the usual one for ${usualFor}: ${install}, or name another one here`
      problems.push(`${key}: there is no program ${program}, or it may not be run${why ?? ''}`)
    }
  return problems
}

/** Returns missing iPXE binaries: problems if for UEFI x86-64 or named in the ini, else warnings. */
function missingFirmware({ boot, tftp }: Config): { problems: string[]; warnings: string[] } {
  const directory = boot.ipxe_directory
  if (directory === '' && tftp.server !== 'none')
    return {
      problems: [],
      warnings: [
        `[boot] ipxe_directory: it is empty, so the TFTP tree of svcd has no ${boot.bios} and ` +
          `${boot.efi_x64}, and nodes whose loader is ipxe do not boot by it; ` +
          'set ipxe_directory = /usr/lib/ipxe'
      ]
    }
  const missing = (['bios', 'efi_x64', 'efi_arm64'] as const).filter(
    key => hasDirectory(directory) && !hasFile(join(directory, boot[key]))
  )
  // BIOS needs a TFTP server, and a cluster may have no arm64: their binaries may not be needed.
  const isNeeded = (key: (typeof missing)[number]) =>
    key === 'efi_x64' || boot[key] !== keys.boot[key].default
  const told = (key: (typeof missing)[number]) =>
    `[boot] ${key}: there is no file ${join(directory, boot[key])}`
  return {
    problems: missing.filter(isNeeded).map(told),
    warnings: missing.filter(key => !isNeeded(key)).map(told)
  }
}

/** Whether the certificate and its key are usable, expire soon, and match the name that nodes use. */
async function tlsFindings(
  { http: { tls_certificate, tls_key, tls_port, url }, store }: Config,
  now: number
): Promise<{ problems: string[]; warnings: string[] }> {
  if (tls_certificate === '') return { problems: [], warnings: [] }
  try {
    const files = { certificate: tls_certificate, key: tls_key, authorities: store.ca }
    const pair = await readPair(files)
    const warnings: string[] = []
    const end = expiry(pair, now)
    const text = `[http] tls_certificate: ${tls_certificate} ${end?.text}`
    if (end && !end.over) warnings.push(text)
    const { protocol, hostname, port } = new URL(url)
    const host = hostname.replace(/^\[|\]$/g, '')
    if (protocol === 'https:' && Number(port || 443) === tls_port) {
      if (!isFor(pair, host))
        warnings.push(`[http] url ${url}: ${tls_certificate} is not for ${host}; nodes refuse it`)
      const lacks = lacksRoot(pair, files)
      if (lacks) warnings.push(`[http] url ${url}: ${lacks}`)
    }
    return { problems: end?.over ? [text] : [], warnings }
  } catch (error) {
    if (!(error instanceof CertificateError)) throw error
    const problems = error.reasons.map(({ of, message }) => `[http] tls_${of}: ${message}`)
    return { problems, warnings: [] }
  }
}

function changedSettings(view: View, ini: ClusterSettings): string[] {
  const inForce = effectiveSettings(view, ini)
  const told = (value: unknown) => JSON.stringify(value)
  return settingNames
    .filter(name => settingOrigin(view, ini, name) === 'changed')
    .map(
      name =>
        `[cluster] ${name}: ${told(inForce[name])} is in force, ` +
        `changed over http; the ini says ${told(ini[name])}`
    )
}

/** Returns objects that break a rule, as a tolerant start does. Throws LoadError for an unknown layout. */
export async function brokenObjects(stored: StoredState, config: Config): Promise<readonly Problem[]> {
  const { state } = config.paths
  // The backup contains a damaged key as it is.
  const box = await secretBoxOf(state).catch(() => new SecretBox())
  const options = storeOptions(state, iniSettings(config), box, version.service)
  const { problems } = startOf({ ...options, onDamage: () => undefined }, stored)
  if (problems.some(({ file }) => file === stored.place(LAYOUT, VERSION))) throw new LoadError(problems)
  // The backup omits unknown types.
  return problems.filter(({ file }) => !file.endsWith('/'))
}
