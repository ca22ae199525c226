import { isIPv4 } from 'node:net'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Semaphore } from '../base/concurrency.js'
import { tryLater } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { Config } from '../config/types.js'
import { parseAddress } from '../model/address.js'
import type { Model } from '../model/model.js'
import type { ClusterSettings, NamedController, View } from '../model/stored.js'
import { objectTypes } from '../model/types.js'
import type { Condition } from '../monitor/health.js'
import type { Change } from '../store/types.js'
import { type ApplyOptions, NotApplied } from './apply.js'
import type { ServiceSettings } from './backend.js'
import { backendOf, type ServiceName, serverOf, serviceNames } from './backends.js'
import { type Captured, capture } from './capture.js'
import { consolesData } from './consoles/data.js'
import type { Runner } from './control.js'
import { type Cards, type DhcpOptions, dhcpData } from './dhcp/data.js'
import { Leases } from './dhcp/leases.js'
import { dnsData } from './dns/data.js'
import type { SerialAgreement } from './dns/serials.js'
import { ManagedServer } from './managed-server.js'
import { Service, type ServiceOptions } from './service.js'
import type { TftpData } from './tftp/variables.js'

/** The state of DHCP and DNS that controllers share. */
export interface SharedServices {
  /** Whether the DHCP server of this controller leaves the dynamic ranges to that of another one. */
  readonly isReadOnly: boolean
  /** Whether another controller can lend the ranges when this one stops. */
  readonly hasSuccessor: boolean
  /** The controllers that zones name; the same array until they change. */
  readonly controllers: readonly NamedController[]
  /** Called when what is shared has changed; must not throw. */
  onChange: (what: 'a zone' | 'a controller') => void
  /** Makes the agreement on zones; `gatherMs`: how long their changes are gathered. */
  agreed(gatherMs: number): SerialAgreement
}

/** The types of objects that DHCP and DNS are rendered from; consoles have those of BMC set-ups too. */
const types: ReadonlySet<string> = new Set([
  'cluster',
  ...Object.values(objectTypes)
    .filter(({ network, connections, interfaces }) => network || connections || interfaces)
    .map(({ type }) => type)
])

/** The content of the TFTP tree, beside the files of the server itself. */
export interface TftpTree {
  /** Brings loaders, kernels and initramfs to their places. Throws Error with what is missing. */
  prepare(signal: AbortSignal): Promise<void>
  /** Yields for each node; returns the configurations, by their names in the tree. */
  configurations(): Generator<unknown, Pick<TftpData, 'files'>>
  /** Called with the configurations that have come into force. */
  inForce(data: Pick<TftpData, 'files'>): void
}

interface ServicesOptions {
  readonly config: Config
  readonly model: Model
  readonly log: Log
  readonly now: () => number
  readonly notes: ApplyOptions['notes']
  /** Runs the commands that change a server. */
  readonly run?: Runner
  readonly tree?: TftpTree | undefined
  /** State shared with other controllers. */
  readonly shared?: SharedServices | undefined
}

/** The DHCP and DNS servers that svcd configures: their files follow the objects. */
export class Services {
  readonly #services = new Map<string, Service>()
  readonly #differing = new Semaphore(1)
  readonly #shared: SharedServices | undefined
  #isLeaving = false

  constructor({ config, model, log, now, notes, run, tree, shared }: ServicesOptions) {
    // DHCP and DNS may be one server: dnsmasq.
    const units = new Map<string, ManagedServer>()
    const unitName = ({ control, service }: ServiceSettings) => JSON.stringify([control, service])
    const add = (
      service: ServiceName,
      dataOf: (captured: Captured) => Generator<unknown, object>,
      more: Pick<ServiceOptions, 'prepare' | 'inForce'> = {}
    ) => {
      if (serverOf(config, service) === 'none') return
      const settings = settingsOf(service, config)
      const { templates } = config.paths
      const unit = units.get(unitName(settings)) ?? new ManagedServer(settings, run)
      units.set(unitName(settings), unit)
      // Captured for each rendering, so that no old object is held in between.
      const data = (captured = this.#capture(model.view, model.cluster)) => dataOf(captured)
      const zones = service === 'dns' ? shared?.agreed(settings.gather) : undefined
      const options = { service, settings, templates, notes, data, log, now, unit, ...more }
      this.#services.set(service, new Service({ ...options, ...(zones ? { zones } : {}) }))
    }
    const isStandby = () => this.#isLeaving || (shared?.isReadOnly ?? false)
    const options = dhcpOptions(config)
    add('dhcp', captured => dhcpData(captured, { ...options, standby: isStandby() }, ownCards()))
    add('dns', dnsData)
    if (tree)
      add('tftp', () => tftpData(tree, config), {
        prepare: signal => tree.prepare(signal),
        inForce: data => tree.inForce(data as TftpData)
      })
    // A BMC has one session for its console: that of the leader.
    add('consoles', captured =>
      consolesData(captured, {
        port: config.consoles.port,
        log_directory: consoleLogs(config),
        ipmi_port: config.control.ipmi_port,
        standby: isStandby()
      })
    )
    this.#shared = shared
    if (!shared) return
    shared.onChange = what => {
      if (what === 'a zone') this.of('dns')?.serialsChanged()
      else for (const service of this.#services.values()) service.serialsChanged()
    }
  }

  /** Returns the service of this name, undefined where svcd does not manage it. */
  of(name: string): Service | undefined {
    return this.#services.get(name)
  }

  /** The condition of each, for Health. */
  get conditions(): Record<string, readonly (() => Condition)[]> {
    return Object.fromEntries([...this.#services].map(([name, service]) => [name, [() => service.condition]]))
  }

  /** Captures a view after `changes`; the result renders it to the files that would differ. Throws 503. */
  differing(
    changes: readonly Change[],
    view: View,
    cluster: ClusterSettings
  ): () => Promise<DifferingFile[]> {
    // The TFTP tree follows the stored objects, and has no files of others.
    const concerned = [...this.#services].filter(([name]) => name !== 'tftp' && concerns(name, changes))
    if (concerned.length === 0) return async () => []
    // One view is rendered at a time, and 503 is thrown where too many wait.
    if (this.#differing.waiting(0) >= MOST_WAITING)
      throw tryLater('too many dry runs wait for the files of DHCP and DNS', 5)
    const captured = this.#capture(view, cluster)
    return () =>
      this.#differing.run('', async () => {
        const all: DifferingFile[] = []
        for (const [name, service] of concerned) {
          const found = await service.differing(captured).catch(notApplied)
          for (const file of found) all.push({ service: name, ...file })
        }
        return all
      })
  }

  start(): void {
    // A killed leader gets its role back when its old lease ends: its range need not go and come.
    const afterMs = this.#shared?.isReadOnly ? STANDBY_MS : 0
    for (const service of this.#services.values()) service.start(afterMs)
  }

  /** Takes committed changes. Cheap. */
  changed(changes: readonly Change[], isUrgent = true): void {
    for (const [name, service] of this.#services) if (concerns(name, changes)) service.changed(isUrgent)
  }

  /** Takes a change of role: this controller became leader or follower. */
  roleChanged(): void {
    for (const service of this.#services.values()) service.roleChanged()
  }

  #capture(view: View, cluster: ClusterSettings): Captured {
    return capture(view, cluster, this.#shared?.controllers)
  }

  async close(): Promise<void> {
    // The servers outlive svcd: they give up the range and the consoles for those of the next leader.
    if (this.#shared?.hasSuccessor) {
      this.#isLeaving = true
      const given = [this.of('dhcp'), this.of('consoles')].map(service => service?.applied().catch(() => {}))
      await Promise.race([Promise.all(given), sleep(LEAVING_MS, undefined, { ref: false })])
    }
    await Promise.all([...this.#services.values()].map(service => service.close()))
  }
}

/** A stop waits so long for the range to be given up: systemd allows 20 s for all of it. */
const LEAVING_MS = 5_000
/** A follower leaves the files as they are for so long after its start. */
const STANDBY_MS = 2_000

/** Most dry runs that wait for a rendering: each holds the objects of a moment. */
const MOST_WAITING = 8

const concerns = (service: string, changes: readonly Change[]) =>
  changes.some(({ type }) => types.has(type) || (moreTypes[service]?.includes(type) ?? false))

const moreTypes: Readonly<Record<string, readonly string[]>> = {
  consoles: ['bmcsetup'],
  tftp: ['group', 'osimage', 'osimagetag', 'pack']
}

/** Reports a service whose files cannot be rendered: the change itself would be stored all the same. */
function notApplied(error: unknown): { problem: string }[] {
  if (error instanceof NotApplied) return [{ problem: error.message }]
  throw error
}

/** A file that would differ after a change, or why the files of the service cannot be made. */
export type DifferingFile = { readonly service: string } & (
  | { readonly path: string; readonly diff: string }
  | { readonly problem: string }
)

/** Returns the ini's values, with the server's usual ones in place of empty ones. */
export function settingsOf(service: ServiceName, config: Config): ServiceSettings {
  const { control, gather, reload, ...given } = config[service] as Config['dns']
  const server = serverOf(config, service)
  const { defaults } = backendOf(service, server)
  const dhcp = service === 'dhcp' ? config.dhcp : undefined
  const logs = service === 'consoles' ? consoleLogs(config) : ''
  return {
    server,
    config: given.config || defaults.config || join(logs, 'conman.conf'),
    directory: given.directory || defaults.directory || (service === 'tftp' ? treeDirectory(config) : logs),
    check: given.check.length > 0 ? given.check : defaults.check,
    reload,
    control: control.length > 0 ? control : ['systemctl'],
    service: given.service || defaults.service,
    gather,
    leaseFile: dhcp?.lease_file || (defaults.leaseFile ?? ''),
    controlSocket: defaults.controlSocket === undefined ? '' : dhcp?.control_socket || defaults.controlSocket
  }
}

/** Returns the directory of the logs of consoles: svcd's own, as foreign logs in it would be removed. */
export const consoleLogs = ({ consoles, paths }: Config): string =>
  join(consoles.directory || paths.state, 'consoles')

/** Returns the directory of the TFTP tree. */
export const treeDirectory = ({ tftp, paths }: Config): string => tftp.directory || join(paths.state, 'tftp')

/** Returns what the binaries of the TFTP tree are made of: names that shim and GRUB have fixed. */
export function treeOptions(config: Config, ticks: () => number) {
  const signed = signedLoaders(config)
  // An ini may name the shim of a signed iPXE like that of GRUB.
  const others = ipxeBinaries(config).filter(({ name }) => !signed.some(loader => loader.name === name))
  return {
    directory: treeDirectory(config),
    files: config.paths.files,
    ticks,
    loaders: [...signed, ...others]
  }
}

/** Returns shim, GRUB and MokManager: the files that UEFI HTTP boot fetches too (rules 4.44). */
export function signedLoaders({ tftp }: Config) {
  const loader = (name: string, key: LoaderKey, missing?: string) => ({
    ...{ name, key, from: tftp[key] },
    ...(missing === undefined
      ? {}
      : { install: `type apt-get install ${missing}, or name another file in [tftp] ${key}` })
  })
  return [
    loader(loaderNames.shim_x64, 'shim_x64', 'shim-signed'),
    loader('grubx64.efi', 'grub_x64', 'grub-efi-amd64-signed'),
    loader('mmx64.efi', 'mok_x64'),
    loader(loaderNames.shim_arm64, 'shim_arm64'),
    loader('grubaa64.efi', 'grub_arm64'),
    loader('mmaa64.efi', 'mok_arm64')
  ]
}
type LoaderKey = `${'shim' | 'grub' | 'mok'}_${'x64' | 'arm64'}`

/** A controller has one TFTP server: nodes whose loader is iPXE ask it as well. */
const ipxeBinaries = ({ boot: { ipxe_directory: directory, bios, efi_x64, efi_arm64 } }: Config) =>
  directory === ''
    ? []
    : [...new Set([bios, efi_x64, efi_arm64])].map(name => ({ name, from: join(directory, name) }))

const loaderNames = { shim_x64: 'shimx64.efi', shim_arm64: 'shimaa64.efi' }

function* tftpData(tree: TftpTree, config: Config): Generator<unknown, TftpData> {
  const isShared = [config.dhcp.server, config.dns.server].includes('dnsmasq')
  return { ...(yield* tree.configurations()), alone: !isShared, interfaces: config.dhcp.interfaces }
}

/** Returns the line of the ini that names the server of a service. */
export const serverLine = (config: Config, service: ServiceName): string =>
  service === 'consoles'
    ? `[consoles] enabled = ${config.consoles.enabled ? 'yes' : 'no'}`
    : `[${service}] server = ${config[service].server}`

/** Returns the programs that svcd runs for services. `usualFor`: undefined where the ini names it itself. */
export function programsOf(config: Config) {
  return serviceNames.flatMap(service => {
    if (serverOf(config, service) === 'none') return []
    const settings = settingsOf(service, config)
    const { zoneCheck = [] } = backendOf(service, settings.server)
    const own = config[service]
    const rows = [
      ['control', settings.control, own.control],
      ['check', settings.check, own.check],
      ['reload', settings.reload, own.reload],
      ['check (of zones)', zoneCheck, []]
    ] as const
    return rows.flatMap(([key, [program], given]) => {
      const usualFor = given.length > 0 ? undefined : serverLine(config, service)
      return program === undefined ? [] : [{ key: `[${service}] ${key}`, program, usualFor }]
    })
  })
}

/** Returns the IPv4 addresses of each card of this machine; those of a label ("eth0:1") are the card's. */
export function ownCards(): Cards {
  const cards = new Map<string, number[]>()
  for (const [name, all = []] of Object.entries(networkInterfaces())) {
    const [card = ''] = name.split(':')
    const addresses = all.filter(({ internal }) => !internal).flatMap(one => parseAddress(one.address) ?? [])
    cards.set(card, [...(cards.get(card) ?? []), ...addresses])
  }
  return [...cards.values()]
}

/** Returns the TFTP server that DHCP names; '' for none. */
export const nextServerOf = ({ dhcp, controller }: Config): string =>
  dhcp.tftp_server || (isIPv4(controller.address) ? controller.address : '')

function dhcpOptions(config: Config): Omit<DhcpOptions, 'standby'> {
  const { http, boot, dhcp, dns } = config
  return {
    url: http.url,
    next_server: nextServerOf(config),
    bios: boot.bios,
    efi_x64: boot.efi_x64,
    efi_arm64: boot.efi_arm64,
    loader: boot.loader,
    ...loaderNames,
    lease_seconds: Math.floor(dhcp.lease_time / 1000),
    interfaces: dhcp.interfaces,
    dns_too: dns.server === 'dnsmasq'
  }
}

/** Returns the leases of the DHCP server; undefined where svcd manages none (rules 4.6). */
export function leases(config: Config): Leases | undefined {
  const { server } = config.dhcp
  return server === 'none' ? undefined : new Leases(server, settingsOf('dhcp', config).leaseFile)
}
