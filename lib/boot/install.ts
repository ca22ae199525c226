import { cachedPerObject } from '../base/concurrency.js'
import { forbidden, notFound, unauthorized } from '../base/errors.js'
import type { RequestContext } from '../base/request-source.js'
import { layoutData, layoutSecrets, sealedSecrets } from '../disk-layout/data.js'
import { type Address, formatAddress, mask, parseAddress } from '../model/address.js'
import { isBmc } from '../model/cluster-index.js'
import {
  type EffectiveNode,
  installedFile,
  installsPackages,
  kernelOptionsOf,
  layoutOf,
  rolesOf
} from '../model/effective.js'
import { secretMask } from '../model/field.js'
import type { Model } from '../model/model.js'
import { dynamicRange, nameServersOf } from '../model/networks.js'
import { rootOf } from '../model/root-format.js'
import { type Secret, secretsOf } from '../model/secrets.js'
import type { InterfaceDoc } from '../model/types/interface.js'
import type { NetworkDoc } from '../model/types/network.js'
import type { NodeDoc } from '../model/types/node.js'
import type { Templates } from '../template/templates.js'
import type { InstallBmc, InstallData, InstallInterface } from './install-data.js'
import type { Library } from './library.js'
import { networkConfig } from './network-config.js'
import { asItBoots, type PreviousPack } from './previous-pack.js'
import { CachedText, render } from './render.js'
import { withoutFile } from './roles.js'
import type { Trace } from './trace.js'

interface InstallOptions {
  readonly model: Model
  readonly templates: Templates
  readonly library: Library
  readonly grants: Grants
  readonly trace: Trace
  readonly issueToken: (node: string, use: 'installing' | 'running', proof: string | undefined) => string
  readonly hasFiles: (node: string) => boolean
  readonly hasFile: (name: string) => boolean
  /** Absent for a single controller. */
  readonly previousPack: PreviousPack | undefined
  /** Node-facing URLs: this controller's first, then those of others (rules 4.28). */
  readonly urls: readonly string[]
  readonly tracker: string
  readonly insecure: boolean
  readonly rootpw: string
  /** `[image] identity`. */
  readonly identity: readonly string[]
  /** Files of an image that identify another machine, in the same form. */
  readonly foreign: readonly string[]
  /** Directory with the files of roles. */
  readonly roles: string
  /** Called when a node gets a script or kickstart that installs this pack ('' for none). */
  readonly onInstall: (node: string, imagefile: string) => void
}

/** The files of a NoCloud seed. */
export const seedFiles = ['meta-data', 'user-data', 'vendor-data', 'network-config'] as const
export type SeedFile = (typeof seedFiles)[number]

type Script = 'install' | 'kickstart'

/** JSON is YAML too. */
const json = (value: object) => `${JSON.stringify(value, undefined, 2)}\n`

/** Makes the install script and the kickstart of a node (rules 4.6, 4.7). */
export class Install {
  /** Parts of the node-facing URL. */
  readonly #protocol: string
  readonly #address: string
  readonly #port: number
  /** The partscripts of disk layouts. */
  readonly #partscripts = cachedPerObject((_layout: object) => ({
    install: new CachedText(),
    kickstart: new CachedText()
  }))

  constructor(private readonly o: InstallOptions) {
    const { protocol, hostname, port } = new URL(o.urls[0] as string)
    this.#protocol = protocol.slice(0, -1)
    this.#address = hostname.replace(/^\[|\]$/g, '')
    this.#port = Number(port) || (protocol === 'https:' ? 443 : 80)
  }

  /** Returns the install script; 401 unless the node itself asks (rules 4.6). */
  script(name: string, visit: RequestContext): string | Promise<string> {
    const node = this.o.model.get('node', name)
    const handOut = () => {
      this.#refuseUnproven(node)
      return this.#handOut('install', node, visit)
    }
    if (hasAddress(node, visit)) return handOut()
    return this.#isGranted(node, visit).then(isGranted => {
      if (isGranted) return handOut()
      const reason = onlyTheNode(node, visit, 'gets its install script')
      this.o.trace.refused(node, reason, visit)
      throw unauthorized(reason, 'wrong-address')
    })
  }

  /**
   * Returns the install script of a node whose machine has shown its TPM; `proof`: that of
   * a good boot, if it was one, for the tokens in the script (rules 15.6, 15.7).
   */
  provenScript(name: string, visit: RequestContext, proof: string | undefined): string {
    return this.#handOut('install', this.o.model.get('node', name), visit, proof)
  }

  /** Throws 401 unless a request comes from an address of the node; `does`: what for (rules 4.6). */
  async refuseOthers(name: string, visit: RequestContext, does: string): Promise<void> {
    const node = this.o.model.get('node', name)
    if (!(await this.#isNode(node, visit)))
      throw unauthorized(onlyTheNode(node, visit, does), 'wrong-address')
  }

  /** Throws 403 where an address alone is not enough (rules 15.1). */
  #refuseUnproven(node: NodeDoc): void {
    if (this.o.model.effective(node).settings.trust === 'require')
      throw forbidden(
        `node ${node.name} has trust = require: its machine gets its script by a quote of its TPM, and not ` +
          'for its address (docs/trust.md)',
        'trust-required'
      )
  }

  /**
   * Records that the node's system is up and was made from the packed image `pack`. Throws 401 for an address
   * that is not the node's (rules 4.26), and StoreError if it cannot be stored.
   */
  async runs(name: string, pack: string, visit: RequestContext): Promise<void> {
    const { model, trace } = this.o
    await this.refuseOthers(name, visit, 'tells what it runs')
    const doc = model.view.get('pack', pack)
    await trace.running(
      name,
      { osimage: doc?.osimage ?? '', osimagetag: '', pack, sha256: doc?.sha256 ?? '' },
      visit
    )
  }

  /** Returns the kickstart; secrets are masked unless the node itself asks (rules 4.7). */
  async kickstart(name: string, visit: RequestContext): Promise<string> {
    const node = this.o.model.get('node', name)
    if (!(await this.#isNode(node, visit))) return this.preview('kickstart', name)
    this.#refuseUnproven(node)
    return this.#handOut('kickstart', node, visit)
  }

  /**
   * Returns a file of the node's NoCloud seed for cloud-init (rules 4.40). The user-data of an autoinstall
   * node is the installer's. `isOwn`: it sent its token. Throws 401 for any other machine, 404 without an
   * image.
   */
  async seed(name: string, file: SeedFile, visit: RequestContext, isOwn: boolean): Promise<string> {
    const { model, templates, trace } = this.o
    const node = model.get('node', name)
    if (!isOwn) {
      await this.refuseOthers(name, visit, 'gets its cloud-init data')
      this.#refuseUnproven(node)
    }
    const target = this.#target(node)
    if (file === 'meta-data')
      return json({
        // A new installation is a new instance, in which cloud-init does everything anew.
        'instance-id': `${name}-${trace.boots.running(name)?.since ?? 0}`,
        'local-hostname': target.hostname
      })
    if (file === 'network-config') return json(networkConfig(interfacesData(model, target)))
    if (file === 'vendor-data')
      return render(templates, 'install/templ_vendor_data.cfg', this.#data(node, false))
    if (target.settings.provision_method === 'autoinstall') return this.#handOut('kickstart', node, visit)
    return render(templates, 'install/templ_user_data.cfg', this.#data(node, false))
  }

  /** Returns what the node would get, with masked secrets and without recording a request (rules 4.12). */
  preview(what: 'install' | 'kickstart' | 'partscript', name: string): string {
    const data = this.#data(this.o.model.get('node', name), true, what === 'kickstart' ? what : 'install')
    if (what !== 'partscript') return this.#render(what, data)
    return Buffer.from(data.partscript, 'base64').toString()
  }

  #handOut(what: Script, node: NodeDoc, visit: RequestContext, proof?: string): string {
    const data = this.#data(node, false, what, proof)
    const text = this.#render(what, data)
    if (visit.headOnly) return text
    this.o.onInstall(data.node, data.imagefile)
    const { osimage, osimagetag, imagefile, imagesum } = data
    const step = installsPackages(data.provision_method) ? 'kickstart' : what
    this.o.trace.install(node, step, { osimage, osimagetag, pack: imagefile, sha256: imagesum }, visit)
    return text
  }

  #render(what: Script, data: InstallData): string {
    if (what === 'kickstart' && data.rescue)
      throw notFound(
        `node ${data.node} boots for a rescue, and the installer would write to its disk: ` +
          `svcctl node rescue ${data.node} --end`,
        'rescue-boot'
      )
    return render(this.o.templates, `install/templ_${templateOf(what, data)}.cfg`, data)
  }

  /** Whether a request comes from an address of the node; not from its BMC (rules 4.6). */
  async #isNode(node: NodeDoc, visit: RequestContext): Promise<boolean> {
    return hasAddress(node, visit) || this.#isGranted(node, visit)
  }

  async #isGranted(node: NodeDoc, visit: RequestContext): Promise<boolean> {
    const { provision, network } = this.o.model.effective(node)
    if (provision?.ipaddress !== undefined || !network) return false
    return this.o.grants.holds(node.name, provision?.macaddress ?? '', network, visit)
  }

  #data(node: NodeDoc, masked: boolean, what: Script = 'install', proof?: string): InstallData {
    const { model, urls, library } = this.o
    const target = this.#target(node)
    const { settings, image } = target
    if (!image) throw notFound(`node ${node.name} has no OS image to install`, 'image-not-ready')
    const [secrets, imagefile] = [effectiveSecrets(model, node, masked), installedFile(settings, image) ?? '']
    const [pack, who] = [model.view.get('pack', imagefile), nodeData(target, urls[0] as string)]
    // One by one: V8 makes a dictionary of a spread, which costs more than the whole rendering.
    return {
      node: who.node,
      hostname: who.hostname,
      domain: who.domain,
      group: who.group,
      comment: who.comment,
      vendor: who.vendor,
      assettag: who.assettag,
      url: who.url,
      urls,
      library: library.sha256(),
      api_protocol: this.#protocol,
      api_address: this.#address,
      api_port: this.#port,
      token: masked ? secretMask : this.o.issueToken(node.name, 'installing', proof),
      insecure: this.o.insecure,
      service: node.service ?? false,
      osimage: image.name,
      osimagetag: settings.osimagetag,
      distribution: image.distribution ?? 'redhat',
      imagefile,
      imagesum: pack?.sha256 ?? '',
      imagesize: pack?.bytes ?? 0,
      torrent: this.#torrent(imagefile),
      identity: this.o.identity,
      foreign: this.o.foreign,
      root: this.#root(target),
      kernelfile: image.kernelfile ?? '',
      initrdfile: image.initrdfile ?? '',
      // A tag may pin another version than the image has now.
      kernelversion: pack?.kernelversion ?? image.kernelversion ?? '',
      kerneloptions: kernelOptionsOf(target),
      provision_method: this.#methodOf(target),
      provision_fallback: settings.provision_fallback,
      provision_interface: settings.provision_interface,
      rescue: node.rescue !== undefined,
      localinstall: settings.localinstall,
      netboot: settings.netboot,
      bootmenu: settings.bootmenu,
      setupbmc: settings.setupbmc,
      bmc: settings.setupbmc ? this.#bmc(target, masked) : false,
      interfaces: interfacesData(model, target),
      network: autoinstallNetwork(model, target),
      prescript: settings.prescript,
      partscript: this.#partscriptOf(target, what),
      postscript: settings.postscript,
      roles: rolesOf(settings),
      // Only in a preview: an installing node notices a missing file when it fetches the role.
      missing_roles: masked ? withoutFile(this.o.roles, rolesOf(settings)) : [],
      secrets,
      secret_access: secretAccess(secrets),
      layout_secrets: layoutSecrets(layoutOf(model.view, target)),
      sealed_secrets: sealedSecrets(layoutOf(model.view, target)),
      ntp_server: model.cluster.ntp_server,
      variables: target.variables,
      // A file may be a unit or an fstab, which would mount a disk in a rescue.
      files: node.rescue === undefined && this.o.hasFiles(node.name),
      files_token: masked ? secretMask : this.o.issueToken(node.name, 'running', proof),
      rootpw: masked && this.o.rootpw !== '' ? secretMask : this.o.rootpw,
      masked
    }
  }

  #target(node: NodeDoc): EffectiveNode {
    return asItBoots(this.o.model, node, this.o.previousPack)
  }

  /** Returns the root that stays packed. Without one, or without its file here, the tar is unpacked. */
  #root(target: EffectiveNode): InstallData['root'] {
    const root = rootOf(this.o.model.view, target)
    return root && this.o.hasFile(root.file) ? { ...root, torrent: this.#torrent(root.file) } : false
  }

  /** Returns how a node fetches its image: only a root that stays packed can be streamed (rules 4.46). */
  #methodOf(target: EffectiveNode): string {
    const { provision_method: method, provision_fallback } = target.settings
    return method === 'stream' && !this.#root(target) ? provision_fallback : method
  }

  /** Returns the partscript in base64. A layout's is the same for all nodes: it is kept for a second. */
  #partscriptOf(target: EffectiveNode, what: Script): string {
    const layout = layoutOf(this.o.model.view, target)
    if (!layout) return target.settings.partscript
    const template = `install/templ_disklayout${what === 'install' ? '' : '_kickstart'}.cfg`
    return this.#partscripts(layout)[what].text([layout], () =>
      Buffer.from(render(this.o.templates, template, layoutData(layout))).toString('base64')
    )
  }

  #torrent(imagefile: string): string {
    const { tracker, hasFile } = this.o
    const torrent = `${imagefile}.torrent`
    return tracker !== '' && imagefile !== '' && hasFile(torrent) ? torrent : ''
  }

  #bmc(target: EffectiveNode, masked: boolean): InstallBmc | false {
    const setup = this.o.model.view.get('bmcsetup', target.settings.bmcsetupname ?? '')
    if (!setup) return false
    const entry = target.interfaces.find(isBmc)
    const on = entry && interfaceData(this.o.model, entry, target)
    const addressed = on !== undefined && on.network !== '' && on.ipaddress !== ''
    return {
      name: setup.name,
      mgmtchannel: setup.mgmtchannel ?? 1,
      netchannel: setup.netchannel ?? 1,
      userid: setup.userid ?? 2,
      username: setup.username ?? '',
      password: masked && setup.password ? secretMask : (setup.password ?? ''),
      unmanaged_bmc_users: (target.settings.unmanaged_bmc_users ?? '') as InstallBmc['unmanaged_bmc_users'],
      ipaddress: addressed ? on.ipaddress : '',
      netmask: addressed ? on.netmask : '',
      gateway: addressed ? on.gateway : '',
      vlan: /(?:^|[\s,])vlan=([^\s,]*)/.exec(on?.options ?? '')?.[1] ?? '',
      ntp_server: on?.ntp_server ?? ''
    }
  }
}

/** Returns the interfaces for subiquity, '' for another installer. */
const autoinstallNetwork = (model: Model, target: EffectiveNode): string =>
  target.settings.provision_method === 'autoinstall'
    ? JSON.stringify(networkConfig(interfacesData(model, target)))
    : ''

/** Returns the template of a node's script: the one of its installer. */
const templateOf = (what: Script, { provision_method: method }: InstallData): string => {
  if (!installsPackages(method)) return what
  return what === 'install' ? 'installer' : method
}

/** Sentence for a request of another machine than the node. */
function onlyTheNode({ name }: NodeDoc, { source: { address } }: RequestContext, does: string): string {
  // Node addresses are IPv4, so a node that asks over IPv6 would retry forever.
  const hint = address.includes(':')
    ? '. Nodes boot over IPv4 alone: turn IPv6 off in the firmware, ' +
      'and give iPXE a URL that leads to an IPv4 address'
    : ''
  return (
    `${address} is not the address of an interface of node ${name} (its BMC does not count): ` +
    `only the node itself ${does}${hint}`
  )
}

/** Whether a request comes from a fixed address of the node. */
const hasAddress = (node: NodeDoc, { source: { address } }: RequestContext): boolean =>
  node.interfaces?.some(entry => entry.ipaddress === address && !isBmc(entry)) === true

/** Returns the secrets of group and node; the node's replace those of the same name (rules 5.5). */
export function effectiveSecrets({ view, box }: Model, node: NodeDoc, masked: boolean): Secret[] {
  const ofGroup = node.group === undefined ? [] : secretsOf(view, box, 'group', node.group, masked)
  const own = secretsOf(view, box, 'node', node.name, masked)
  return [...new Map([...ofGroup, ...own].map(entry => [entry.name, entry])).values()]
}

/** Mode, owner and group of the secrets that set one of them. */
const secretAccess = (secrets: readonly Secret[]): Record<string, string> =>
  Object.fromEntries(
    secrets.flatMap(({ name, mode = '', owner = '', group = '' }) =>
      mode || owner || group ? [[name, `${mode || '0600'} ${owner || 0} ${group || 0}`]] : []
    )
  )

const interfacesData = (model: Model, target: EffectiveNode): InstallInterface[] =>
  target.interfaces.map(entry => interfaceData(model, entry, target))

/** Returns one interface of a node with the settings of its network. */
export function interfaceData(
  { view, cluster }: Model,
  entry: InterfaceDoc,
  target: EffectiveNode
): InstallInterface {
  const network = entry.network === undefined ? undefined : view.get('network', entry.network)
  const length = (network && view.index.networks.get(network.name)?.length) ?? 0
  return {
    interface: entry.interface,
    network: network?.name ?? '',
    ipaddress: entry.ipaddress ?? '',
    prefixlen: length,
    netmask: formatAddress(mask(length)),
    gateway: network?.gateway ?? '',
    nameserver: network ? nameServersOf(network, cluster).join(' ') : '',
    routes: network?.routes ?? [],
    ns_hostname: network?.ns_hostname ?? '',
    domain: network?.name ?? '',
    ntp_server: network?.ntp_server ?? cluster.ntp_server,
    macaddress: entry.macaddress ?? '',
    options: entry.options ?? '',
    provision: entry === target.provision,
    bmc: isBmc(entry)
  }
}

/** Returns what identifies a node in templates; '' for values that are not set. `url` is svcd's. */
export const nodeData = ({ node, hostname, domain }: EffectiveNode, url: string) => ({
  node: node.name,
  hostname,
  domain,
  group: node.group ?? '',
  comment: node.comment ?? '',
  vendor: node.vendor ?? '',
  assettag: node.assettag ?? '',
  url
})

const grantMs = 3_600_000

interface Grant {
  /** The machine that got the grant, which ends when the node gets another MAC. */
  readonly mac: string
  readonly address: Address
  readonly until: number
}

/**
 * Knows which dynamic address belongs to which node (rules 4.6). That is the address leased to the node's
 * MAC. If svcd manages no DHCP server, it is the first address of the range that fetched the node's boot
 * script, for one hour.
 */
export class Grants {
  readonly #grants = new Map<string, Grant>()

  constructor(
    readonly now: () => number,
    readonly onGrant: (node: string, address: string) => void,
    /** Whether the DHCP server leased an address to a MAC; absent if svcd manages no DHCP server. */
    readonly hasLease?: (mac: string, address: string) => Promise<boolean>
  ) {}

  /** Grants `source` to the node whose boot script it fetched, unless another address has the grant. */
  offer(node: string, mac: string, network: NetworkDoc, source: string): void {
    const address = dynamicAddress(network, source)
    if (this.hasLease || address === undefined || this.#live(node, mac)) return
    this.#grant(node, mac, address, source)
  }

  /** Whether a request comes from the node's dynamic address. With a DHCP server, its leases decide. */
  async holds(node: string, mac: string, network: NetworkDoc, { source, headOnly }: RequestContext) {
    const address = dynamicAddress(network, source.address)
    if (address === undefined) return false
    const holds = this.#live(node, mac)?.address === address
    if (!this.hasLease || mac === '') return holds
    const leased = await this.hasLease(mac, source.address)
    if (leased && !holds && !headOnly) this.#grant(node, mac, address, source.address)
    if (!leased && !headOnly) this.#grants.delete(node)
    return leased
  }

  #grant(node: string, mac: string, address: Address, source: string): void {
    this.#forgetOld()
    this.#grants.delete(node)
    this.#grants.set(node, { mac, address, until: this.now() + grantMs })
    this.onGrant(node, source)
  }

  #live(node: string, mac: string): Grant | undefined {
    const grant = this.#grants.get(node)
    return grant?.mac === mac && grant.until > this.now() ? grant : undefined
  }

  /** Grants are in the order in which they expire, so the loop stops at the first live one. */
  #forgetOld(): void {
    for (const [node, grant] of this.#grants) {
      if (grant.until > this.now()) return
      this.#grants.delete(node)
    }
  }
}

/** Parses an address of the network's dynamic range; undefined for any other. */
function dynamicAddress(network: NetworkDoc, source: string): Address | undefined {
  const range = dynamicRange(network)
  const address = parseAddress(source)
  return range && address !== undefined && address >= range.first && address <= range.last
    ? address
    : undefined
}
