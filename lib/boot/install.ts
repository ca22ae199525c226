import { notFound, unauthorized } from '../errors.js'
import { formatAddress, mask } from '../model/address.js'
import { type EffectiveNode, rolesOf } from '../model/effective.js'
import { hidden } from '../model/hidden.js'
import { isBmc } from '../model/index.js'
import type { Model } from '../model/model.js'
import { type Secret, secretsOf } from '../model/secrets.js'
import type { InterfaceDoc, NodeDoc } from '../model/tables.js'
import type { Source } from '../source.js'
import type { Templates } from '../template/templates.js'
import type { Grants } from './grants.js'
import type { InstallBmc, InstallData, InstallInterface } from './install-data.js'

export interface InstallOptions {
  readonly model: Model
  readonly templates: Templates
  readonly grants: Grants
  readonly issueToken: (node: string) => string
  readonly hasFile: (name: string) => boolean
  /** Node-facing URL. */
  readonly url: string
  readonly tracker: string
  readonly insecure: boolean
  readonly rootpw: string
  /** A node was given a script, or kickstart, that makes it install this pack ('' for none). */
  readonly began: (node: string, imagefile: string) => void
}

const netmask = (length: number) => formatAddress(mask(length))

/** The install script and the kickstart of a node (rules 4.6, 4.7). */
export class Install {
  readonly #o: InstallOptions

  constructor(options: InstallOptions) {
    this.#o = options
  }

  /** The install script; 401 unless the request comes from the node itself (rules 4.6). */
  script(name: string, source: Source): string {
    const node = this.#o.model.get('node', name)
    if (!this.isNode(node, source))
      throw unauthorized(
        `${source.address} is no address of node ${name}: its install script is for itself alone`
      )
    return this.#handOut('install/templ_install.cfg', this.#data(node, false))
  }

  /** The install script with its secrets masked. */
  preview(name: string): string {
    const data = this.#data(this.#o.model.get('node', name), true)
    return this.#o.templates.render('install/templ_install.cfg', { ...data })
  }

  /** The kickstart; secrets are masked unless the request comes from the node itself (rules 4.7). */
  kickstart(name: string, source: Source | undefined): string {
    const node = this.#o.model.get('node', name)
    const data = this.#data(node, source === undefined || !this.isNode(node, source))
    return this.#handOut('install/templ_kickstart.cfg', data)
  }

  #handOut(template: string, data: InstallData): string {
    const text = this.#o.templates.render(template, { ...data })
    if (!data.masked) this.#o.began(data.node, data.imagefile)
    return text
  }

  /** To be awaited before `script` and `kickstart`: the DHCP server may have lent the source its address. */
  async lookForLease(name: string, source: Source): Promise<void> {
    const { model, grants } = this.#o
    const target = model.effective(model.get('node', name))
    const { provision, network } = target
    if (provision?.ipaddress !== undefined || provision?.macaddress === undefined || !network) return
    await grants.look(name, provision.macaddress, network, source.address)
  }

  /** Whether a request comes from one of the node's addresses, or from the dynamic one it was granted. */
  isNode(node: NodeDoc, source: Source): boolean {
    if (node.interfaces?.some(entry => entry.ipaddress === source.address)) return true
    const target = this.#o.model.effective(node)
    return (
      target.provision?.ipaddress === undefined &&
      this.#o.grants.has(node.name, target.provision?.macaddress ?? '', source.address)
    )
  }

  #data(node: NodeDoc, masked: boolean): InstallData {
    const { model, url, tracker, hasFile } = this.#o
    const target = model.effective(node)
    const { settings, image } = target
    if (!image) throw notFound(`node ${node.name} has no OS image to install`)
    const imagefile = image.imagefile ?? ''
    const torrent = `${imagefile}.torrent`
    const address = new URL(url)
    return {
      node: node.name,
      hostname: target.hostname,
      domain: target.domain,
      group: node.group ?? '',
      comment: node.comment ?? '',
      vendor: node.vendor ?? '',
      assettag: node.assettag ?? '',
      url,
      api_protocol: address.protocol.slice(0, -1),
      api_address: address.hostname.replace(/^\[|\]$/g, ''),
      api_port: Number(address.port) || (address.protocol === 'https:' ? 443 : 80),
      token: masked ? hidden : this.#o.issueToken(node.name),
      insecure: this.#o.insecure,
      service: node.service ?? false,
      osimage: image.name,
      osimagetag: settings.osimagetag,
      distribution: image.distribution ?? 'redhat',
      imagefile,
      imagesum: model.view.get('pack', imagefile)?.sha256 ?? '',
      torrent: tracker !== '' && imagefile !== '' && hasFile(torrent) ? torrent : '',
      kernelfile: image.kernelfile ?? '',
      initrdfile: image.initrdfile ?? '',
      kernelversion: image.kernelversion ?? '',
      kerneloptions: image.kerneloptions ?? '',
      provision_method: settings.provision_method,
      provision_fallback: settings.provision_fallback,
      provision_interface: settings.provision_interface,
      localinstall: settings.localinstall,
      netboot: settings.netboot,
      bootmenu: settings.bootmenu,
      setupbmc: settings.setupbmc,
      bmc: settings.setupbmc ? this.#bmc(target, masked) : false,
      interfaces: target.interfaces.map(entry => this.#interface(entry, target)),
      prescript: settings.prescript,
      partscript: settings.partscript,
      postscript: settings.postscript,
      roles: rolesOf(settings),
      secrets: this.#secrets(node, masked),
      ntp_server: model.cluster.ntp_server,
      rootpw: masked && this.#o.rootpw !== '' ? hidden : this.#o.rootpw,
      masked
    }
  }

  /** The group's secrets and the node's own, which win over one of the same name (rules 5.5). */
  #secrets(node: NodeDoc, masked: boolean): Secret[] {
    const { view, box } = this.#o.model
    const ofGroup = node.group === undefined ? [] : secretsOf(view, box, 'group', node.group, masked)
    const own = secretsOf(view, box, 'node', node.name, masked)
    return [...new Map([...ofGroup, ...own].map(entry => [entry.name, entry])).values()]
  }

  #interface(entry: InterfaceDoc, target: EffectiveNode): InstallInterface {
    const { view, cluster } = this.#o.model
    const network = entry.network === undefined ? undefined : view.get('network', entry.network)
    const length = (network && view.index.networks.get(network.name)?.length) ?? 0
    return {
      interface: entry.interface,
      network: network?.name ?? '',
      ipaddress: entry.ipaddress ?? '',
      prefixlen: length,
      netmask: netmask(length),
      gateway: network?.gateway ?? '',
      nameserver: network?.ns_ip ?? '',
      ns_hostname: network?.ns_hostname ?? '',
      domain: network?.name ?? '',
      ntp_server: network?.ntp_server ?? cluster.ntp_server,
      macaddress: entry.macaddress ?? '',
      options: entry.options ?? '',
      provision: entry === target.provision,
      bmc: isBmc(entry)
    }
  }

  #bmc(target: EffectiveNode, masked: boolean): InstallBmc | false {
    const setup = this.#o.model.view.get('bmcsetup', target.settings.bmcsetupname ?? '')
    if (!setup) return false
    const entry = target.interfaces.find(isBmc)
    const on = entry && this.#interface(entry, target)
    const addressed = on !== undefined && on.network !== '' && on.ipaddress !== ''
    return {
      name: setup.name,
      mgmtchannel: setup.mgmtchannel ?? 1,
      netchannel: setup.netchannel ?? 1,
      userid: setup.userid ?? 2,
      username: setup.username ?? '',
      password: masked && setup.password ? hidden : (setup.password ?? ''),
      unmanaged_bmc_users: (target.settings.unmanaged_bmc_users ?? '') as InstallBmc['unmanaged_bmc_users'],
      ipaddress: addressed ? on.ipaddress : '',
      netmask: addressed ? on.netmask : '',
      gateway: addressed ? on.gateway : '',
      vlan: /(?:^|[\s,])vlan=([^\s,]*)/.exec(on?.options ?? '')?.[1] ?? '',
      ntp_server: on?.ntp_server ?? ''
    }
  }
}
