import type { IncomingMessage } from 'node:http'
import { cachedPerObject } from '../base/concurrency.js'
import { badRequest, forbidden, ServiceError } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { RequestContext, RequestSource } from '../base/request-source.js'
import type { DataOf } from '../base/variables.js'
import { contains, parseAddress } from '../model/address.js'
import { isBmc } from '../model/cluster-index.js'
import {
  type EffectiveNode,
  installsPackages,
  kernelOptionsOf,
  type Loader,
  loaderOf,
  rolesOf
} from '../model/effective.js'
import type { Model } from '../model/model.js'
import { isNodeName, splitNumber } from '../model/names.js'
import { nameServersOf } from '../model/networks.js'
import type { Tx, View } from '../model/stored.js'
import { defaultTag } from '../model/tags.js'
import type { GroupDoc } from '../model/types/group.js'
import type { NodeDoc } from '../model/types/node.js'
import type { VariableMap } from '../model/variables.js'
import { packLacks, renderFailurePrefix, tagReasonPrefix } from '../monitor/boot-steps.js'
import type { NodeStatus } from '../monitor/node-status.js'
import type { Templates } from '../template/templates.js'
import type { MeasuredBoot } from './grub/script.js'
import type { Handover, HandoverResult } from './handover.js'
import type { Grants } from './install.js'
import { asItBoots, type PreviousPack } from './previous-pack.js'
import { CachedText, render } from './render.js'
import type { bootTemplates } from './template-variables.js'
import type { Trace } from './trace.js'

/** Nodes and groups in the menu, which bounds its size. Other names can be typed. */
export const menuEntriesMax = 250
/** Shared, as thousands of machines ask at once. */
const noFindings = {}
/** Delay before the menu looks for the machine, first and in later rounds. */
const menuMs = 5_000
const unknownMs = 15_000

/** Finds the node of an unknown machine, also in the transaction that gives it the MAC. */
type LookUp = (view: View) => { readonly node: NodeDoc; readonly where: string } | undefined

interface BootOptions {
  readonly model: Model
  readonly templates: Templates
  readonly status: NodeStatus
  readonly grants: Grants
  readonly trace: Trace
  readonly hasFile: (name: string) => boolean
  /** Whether another controller in `urls` may have a file that is missing here. */
  readonly mayBeOnPeer: (file: string) => boolean
  /** Absent for a single controller. */
  readonly previousPack: PreviousPack | undefined
  /** Node-facing URLs: this controller's first, then those of others (rules 4.28). */
  readonly urls: readonly string[]
  readonly manual: 'networks' | 'any' | 'none'
  /** The loader of nodes for which neither they, their group nor their network name one. */
  readonly loader: Loader
  readonly handover: Handover
  readonly dynamicNodes: boolean
  /** Absent if `[boot] snmp_detection = no`. */
  readonly detection?: { find(mac: string): Promise<LookUp | undefined> }
  readonly unknown: {
    /** Records what a machine says of itself whose MAC no node or device has. */
    note(mac: string, query: URLSearchParams, address: string): void
    /** Finds the node of a machine by its serial number and UUID; undefined without `[boot] by_serial`. */
    find(mac: string, query: URLSearchParams): LookUp | undefined
  }
  readonly log: Log
  /** Fingerprint of the key that signs the answers to proofs of nodes. */
  readonly trustKey: string
}

/** The node that a machine gets, and what it takes; undefined: it had the node before. */
type Picked = { readonly node: string; readonly given: HandoverResult | undefined }

/** The boot of nodes by GRUB: `GrubConfigs`. */
interface ByGrub {
  /** Returns what GRUB measures when a node boots, for each of its MACs, or why that is not known. */
  measure(node: string): MeasuredBoot[] | string
  /** Returns why GRUB cannot boot a node that iPXE could; undefined if it can. */
  obstacleOf(node: string): string | undefined
}

/** A request with what the machine says of itself. */
type Search = RequestContext & { readonly query: URLSearchParams }

/** Makes the iPXE scripts for booting machines (rules 4.1, 4.13). */
export class Boot {
  /** Nodes that asked from outside their network, and were logged. */
  readonly #misplaced = new WeakSet<NodeDoc>()
  /** Cached, as every machine asks for the same menu first. */
  readonly #menu = new CachedText()

  /** The SHA-256 in hex of the public key of svcd's TLS certificate, for nodes to pin; '' for none. */
  pin = ''
  /** Set where svcd keeps a TFTP tree. */
  grub: ByGrub | undefined

  constructor(private readonly o: BootOptions) {}

  /** Returns what GRUB measures when a node boots, for each of its MACs, or why that is not known. */
  measured(node: string): MeasuredBoot[] | string {
    return this.grub?.measure(node) ?? 'svcd keeps no TFTP tree: set [tftp] server'
  }

  /** Returns the kernel arguments for a node that proves what it is (rules 15.1); '' without. */
  trustArguments({ settings: { trust } }: Pick<EffectiveNode, 'settings'>): string {
    if (trust === 'none') return ''
    return `svc.trust=${trust} svc.key=${this.o.trustKey}${this.pin === '' ? '' : ` svc.pin=${this.pin}`}`
  }

  /** Returns the normal menu (cases 2 and 4, rules 4.13). `unknown`: the machine's MAC, if no node has it. */
  menu(unknown = ''): string {
    const { templates, model } = this.o
    const template = 'boot/templ_boot_ipxe.cfg'
    const names = (type: 'group' | 'node') => model.view.names(type).slice(0, menuEntriesMax)
    const all = (type: 'group' | 'node') => model.view.names(type).length <= menuEntriesMax
    const shown = {
      timeout_ms: unknown === '' ? menuMs : unknownMs,
      groups: names('group'),
      nodes: names('node'),
      all_groups: all('group'),
      all_nodes: all('node')
    }
    const text = (mac: string) => this.render(template, { mac, ...shown })
    if (unknown !== '') return text(unknown)
    const { groups, nodes, all_groups, all_nodes } = shown
    const from = [templates.identity(template), model.cluster.variables, all_groups, all_nodes]
    return this.#menu.text([...from, groups.length, ...groups, ...nodes], () => text(''))
  }

  /** Returns the short menu (case 1). */
  shortMenu(): string {
    return this.render('boot/templ_boot_ipxe_short.cfg', {})
  }

  /** Returns the script that boots from the local disk (case 3). */
  disk(): string {
    return this.render('boot/templ_boot_disk.cfg', {})
  }

  /**
   * Returns the script for a MAC: its node's, or the normal menu (rules 4.1). Returns a promise only if an
   * unknown machine has the serial number of a node, or is searched for on the switches, which only a source
   * within the networks can cause (rules 4.5).
   */
  search(mac: string, visit: Search): string | Promise<string> {
    const { model, detection, unknown } = this.o
    const node = this.#machine(mac)
    if (node) return this.#script(node, mac, visit)
    const { source } = visit
    const free = model.view.index.macOwners(mac).length === 0
    if (!free || model.isReadOnly || !(source.loopback || this.isInside(source)))
      return this.#unknown(mac, visit)
    const lookUp = unknown.find(mac, visit.query)
    const found = lookUp?.(model.view)
    if (lookUp && found && isAtHome(this.#effectiveNode(found.node), source))
      return this.#become(lookUp, mac, visit)
    if (!detection) return this.#unknown(mac, visit)
    return detection.find(mac).then(seen => this.#become(seen, mac, visit))
  }

  /** Returns the node with a MAC on an interface that boots. */
  #machine(mac: string): NodeDoc | undefined {
    const { view } = this.o.model
    // A loop, not a closure: thousands of machines ask at once.
    for (const owner of view.index.macOwners(mac))
      if (owner.type === 'node' && owner.interface !== undefined && !isBmc(owner))
        return view.get('node', owner.name)
    return undefined
  }

  /** Gives the MAC to the node that is found, and returns its script, or the menu. */
  async #become(lookUp: LookUp | undefined, mac: string, visit: Search): Promise<string> {
    const { model, handover, log } = this.o
    const seen = lookUp?.(model.view)
    if (seen && visit.headOnly) return this.#script(seen.node, mac, visit)
    if (lookUp && seen) {
      const { address } = visit.source
      try {
        const found = await model.change(actorAt(address, 'svcd'), tx => {
          // The machine may have asked a second time, or an admin may have assigned its MAC.
          const detected = tx.index.macOwners(mac).length === 0 ? lookUp(tx) : undefined
          return detected && { ...detected, given: handover.assignMachine(tx, detected.node, mac, address) }
        })
        if (found) log.info(`MAC ${mac} given to node ${found.node.name}: it is ${found.where}`)
        if (found) handover.logTakeovers(found.given, mac, found.node.name)
      } catch (error) {
        return this.#refusalAtConsole(error)
      }
    }
    const node = this.#machine(mac)
    return node ? this.#script(node, mac, visit) : this.#unknown(mac, visit)
  }

  #unknown(mac: string, visit: Search): string {
    const { model, trace, unknown } = this.o
    trace.unknown(mac, visit)
    if (!visit.headOnly && model.view.index.macOwners(mac).length === 0)
      unknown.note(mac, visit.query, visit.source.address)
    return this.menu(mac)
  }

  /**
   * Boots a machine as the named node. The MAC moves to the node, and a former owner loses it and its status
   * (rules 4.4), unless a node has to be released first (rules 4.23). Throws 403 for a source that may not
   * choose a node.
   */
  async manualHost(name: string, mac: string | undefined, visit: RequestContext): Promise<string> {
    this.#checkManual(visit.source)
    const { model, handover } = this.o
    const named = model.view.get('node', name)
    if (!named) return this.#error(`there is no node ${name}`)
    try {
      // Without a MAC nothing is stored; iPXE fills in the MAC that it booted with.
      if (mac === undefined) {
        handover.checkWithoutMac(named)
        return this.#script(named, '${netX/mac}', visit)
      }
      const given = await model.change(actorAt(visit.source.address), tx => {
        const node = tx.get('node', name)
        return node && handover.assignMachine(tx, node, mac, visit.source.address)
      })
      if (given) await this.#moved(given, mac, name)
    } catch (error) {
      return this.#refusalAtConsole(error)
    }
    return this.#scriptOf(name, mac, visit)
  }

  /** Returns the script of a node, which may have been deleted meanwhile. */
  #scriptOf(name: string, mac: string, visit: RequestContext): string {
    const node = this.o.model.view.get('node', name)
    return node ? this.#script(node, mac, visit) : this.#error(`there is no node ${name}`)
  }

  /**
   * Boots a machine as a node of a group: the member with the MAC, else the first member without a MAC, else
   * a new member. Concurrent requests get different nodes (rules 4.3). Throws 403 for a source that may not
   * choose a node.
   */
  async manualGroup(name: string, mac: string, visit: RequestContext): Promise<string> {
    this.#checkManual(visit.source)
    const { model } = this.o
    let picked: Picked | undefined
    try {
      picked = await model.change(actorAt(visit.source.address), tx => {
        const group = tx.get('group', name)
        return group && this.#pick(tx, group, mac, visit.source)
      })
    } catch (error) {
      return this.#refusalAtConsole(error, status => status < 500)
    }
    if (!picked) return this.#error(`there is no group ${name}`)
    if (picked.given) await this.#moved(picked.given, mac, picked.node)
    return this.#scriptOf(picked.node, mac, visit)
  }

  #pick(tx: Tx, group: GroupDoc, mac: string, source: RequestSource): Picked {
    const { model, handover } = this.o
    const owner = model.ownerOfMac(tx, mac)
    if (owner?.type === 'node' && tx.get('node', owner.name)?.group === group.name)
      return { node: owner.name, given: undefined }
    const free = tx.index.members(group.name)?.free.values[0]
    const node = free === undefined ? undefined : tx.get('node', free)
    if (!node) handover.countNew()
    const member = node ?? model.createMember(tx, group, this.#newName(tx, group.name))
    if (!node) this.o.log.info(`node ${member.name} created in group ${group.name} for ${mac}`)
    return { node: member.name, given: handover.assignMachine(tx, member, mac, source.address) }
  }

  /** Returns the highest-numbered member's name plus one, digits kept; `<group>001` in an empty group. */
  #newName(tx: Tx, group: string): string {
    const highest = tx.index.members(group)?.numbered.values.at(-1)
    const { stem, digits } =
      highest === undefined
        ? { stem: group.toLowerCase().replace(/^[^a-z0-9]+|[^a-z0-9-]/g, ''), digits: '000' }
        : splitNumber(highest)
    let number = BigInt(digits || 0)
    for (;;) {
      number += 1n
      const name = `${stem}${String(number).padStart(digits.length || 3, '0')}`
      const why = `group ${group}: no name for a new node can be made after ${highest ?? group}`
      if (!isNodeName(name)) throw badRequest(why, 'invalid-name')
      if (!tx.get('node', name)) return name
    }
  }

  async #moved(given: HandoverResult, mac: string, to: string): Promise<void> {
    const { handover, status } = this.o
    handover.logTakeovers(given, mac, to)
    if (given.former !== undefined) await status.drop(given.former)
  }

  /** Turns a refusal into an iPXE script (rules 4.35): iPXE shows no reason. Undefined for others. */
  refusalScript(
    { status, message }: ServiceError,
    { url = '', headers }: Pick<IncomingMessage, 'url' | 'headers'>
  ) {
    if (![400, 403, 404].includes(status) || !/^\/boot\/(?:search|manual)(?:\/|$)/.test(url)) return undefined
    if (!headers['user-agent']?.startsWith('iPXE/')) return undefined
    const why =
      status === 404 || /\/mac\/?$/.test(url)
        ? `${url.slice(0, 200)} is no boot page: a name or a MAC address is missing at its end`
        : message
    return { status: 200, text: this.#error(why.replaceAll('"', '')) }
  }

  /** Returns a script with the reason for the person at the console: iPXE would show only the status. */
  #refusalAtConsole(error: unknown, isTold: (status: number) => boolean = status => status === 403): string {
    if (error instanceof ServiceError && isTold(error.status)) return this.#error(error.message)
    throw error
  }

  #checkManual(source: RequestSource): void {
    const { manual } = this.o
    if (manual === 'any' || (manual === 'networks' && (source.loopback || this.isInside(source)))) return
    const why = `[boot] manual = ${manual} does not let ${source.address} choose a node`
    throw forbidden(why, 'manual-boot-refused')
  }

  isInside(source: RequestSource): boolean {
    const address = parseAddress(source.address)
    if (address === undefined) return false
    for (const prefix of this.o.model.view.index.networks.values()) if (contains(prefix, address)) return true
    return false
  }

  rolesOf(name: string): string[] {
    return rolesOf(this.#effective(name).settings)
  }

  /** Whether a pack is the current pack of the node's image, or an older one that may still be installing. */
  installs(name: string, pack: string): boolean {
    const { image } = this.#effective(name)
    if (!image) return false
    return image.imagefile === pack || this.o.model.view.get('pack', pack)?.osimage === image.name
  }

  #effective(name: string): EffectiveNode {
    return this.#effectiveNode(this.o.model.get('node', name))
  }

  #effectiveNode(node: NodeDoc): EffectiveNode {
    return asItBoots(this.o.model, node, this.o.previousPack)
  }

  /** Returns why the node would now get no boot script, or one with a known obstacle; undefined if none. */
  obstacleOf(name: string): string | undefined {
    const target = this.#effective(name)
    const { reason } = this.#findings(target)
    try {
      this.#preview(target, reason)
    } catch (error) {
      if (error instanceof ServiceError) return unrenderable(error)
      throw error
    }
    if (reason !== undefined || loaderOf(target, this.o.loader) !== 'grub') return reason
    return this.grub ? this.grub.obstacleOf(name) : noTree(name)
  }

  /** Returns what the node's machine would get now, without recording a request. */
  preview(name: string): string {
    const target = this.#effective(name)
    return this.#preview(target, this.#findings(target).reason)
  }

  #preview(target: EffectiveNode, reason: string | undefined): string {
    return this.#answer(target, target.provision?.macaddress ?? '${netX/mac}', reason)
  }

  #script(node: NodeDoc, mac: string, visit: RequestContext): string {
    const target = this.#effectiveNode(node)
    const { reason, lacking = this.o.previousPack?.sentence(target) ?? this.#byAnother(target) } =
      this.#findings(target)
    const warning =
      reason === undefined && target.settings.netboot ? wrongNetworkWarning(target, visit.source) : undefined
    // The reason, warning or missing file goes with the record of the request.
    const note = (said: string | undefined, isOwn = true) => {
      if (visit.headOnly) return
      const { status, log, grants, dynamicNodes } = this.o
      const { provision, network } = target
      this.#recordRequest(target, said, visit)
      const news = status.setReason(node.name, (isOwn ? said : undefined) ?? warning ?? lacking ?? null)
      if (news && isOwn && said !== undefined) log.warn(`node ${node.name} cannot boot: ${said}`)
      else if (news && lacking !== undefined && warning === undefined)
        log.warn(`node ${node.name}: ${lacking}`)
      // Anybody can ask from anywhere, again and again. So it is logged once, until the node is changed.
      if (warning !== undefined && !this.#misplaced.has(node)) {
        this.#misplaced.add(node)
        log.warn(warning)
      }
      if (dynamicNodes && said === undefined && provision?.ipaddress === undefined && network)
        grants.offer(node.name, provision?.macaddress ?? '', network, visit.source.address)
    }
    let text: string
    try {
      text = this.#answer(target, mac, reason, warning)
    } catch (error) {
      // Anybody may ask with any MAC, so an error that only this request causes is not the node's reason.
      if (error instanceof ServiceError) note(unrenderable(error), this.obstacleOf(node.name) !== undefined)
      throw error
    }
    note(reason)
    return text
  }

  /** Returns that a machine asks for iPXE's script although its loader is GRUB; undefined if it is not. */
  #byAnother(target: EffectiveNode): string | undefined {
    if (loaderOf(target, this.o.loader) !== 'grub') return undefined
    return (
      `its loader is grub, and it booted by iPXE: grub needs UEFI firmware that boots by PXE ` +
      `(set its firmware to UEFI, or: svcctl node set ${target.node.name} loader=ipxe)`
    )
  }

  /** Records a request for a script: what it got, or why nothing. */
  #recordRequest(target: EffectiveNode, reason: string | undefined, visit: RequestContext): void {
    const { image, settings } = target
    const { trace } = this.o
    if (reason !== undefined) trace.script(target, 'no-script', reason, visit)
    else if (!settings.netboot) trace.script(target, 'disk', '', visit)
    else if (image) trace.script(target, 'script', filesText(image), visit)
  }

  /** Returns why the node cannot boot, or what another controller must send; empty if all is well. */
  #findings(target: EffectiveNode): { readonly reason?: string; readonly lacking?: string } {
    const { hasFile, mayBeOnPeer } = this.o
    const found = target.settings.netboot ? obstacle(target, hasFile) : undefined
    if (found === undefined) return unprovable(target, this.o.loader) ?? noFindings
    const reason = obstacle(target, file => hasFile(file) || mayBeOnPeer(file))
    if (reason !== undefined) return { reason }
    // In the past tense: the text stays until the machine asks again, maybe for weeks.
    const { name } = this.o.model.cluster.controller
    return {
      lacking:
        `${found.replace(/is missing$/, 'was missing')} on controller ${name} when the machine asked ` +
        'last: another controller had to send it'
    }
  }

  #answer(target: EffectiveNode, mac: string, reason: string | undefined, warning = ''): string {
    if (!target.settings.netboot) return this.disk()
    const menu = target.settings.bootmenu ? 'boot' : 'boot/short'
    return reason === undefined
      ? this.#kernel(target, mac, warning)
      : this.#error(reason, target.node.name, menu)
  }

  /** Returns a node as it boots next, why it cannot, and its kernel's arguments behind GRUB (rules 4.42). */
  byLoader(name: string) {
    const target = this.#effective(name)
    return {
      target,
      loader: loaderOf(target, this.o.loader),
      reason: this.#findings(target).reason,
      argumentsFor: (mac: string) =>
        this.render('boot/arguments.cfg', this.#kernelData(target, mac, 'grub')).trim()
    }
  }

  /** Returns the script that fetches kernel and initramfs and starts the kernel (rules 4.2, 4.14). */
  #kernel(target: EffectiveNode, mac: string, warning: string): string {
    const { image, settings } = target
    return this.render('boot/templ_boot_node.cfg', {
      ...this.#kernelData(target, mac, 'ipxe'),
      kernelfile: image?.kernelfile ?? '',
      initrdfile: image?.initrdfile ?? '',
      warning: safeForEcho(warning),
      menu: settings.bootmenu ? 'boot' : 'boot/short'
    })
  }

  /** Returns what the arguments of a node's kernel are made of. */
  #kernelData(target: EffectiveNode, mac: string, loader: Loader) {
    const { node, settings, provision, prefix } = target
    const ip = provision?.ipaddress === undefined || !prefix ? '' : `${provision.ipaddress}/${prefix.length}`
    const bootproto: 'dhcp' | 'static' = ip === '' ? 'dhcp' : 'static'
    return {
      ...{ node: node.name, variables: target.variables, loader, bootproto },
      mac,
      ip,
      hostname: target.hostname,
      nameserver: target.network ? nameServersOf(target.network, this.o.model.cluster).join(' ') : '',
      service: node.service ? 1 : 0,
      rescue: node.rescue !== undefined,
      provision_method: settings.provision_method,
      further: this.trustArguments(target),
      kerneloptions: kernelOptionsOf(target)
    }
  }

  #error(reason: string, node = '', menu = 'boot'): string {
    return this.render('boot/templ_boot_error.cfg', { node, reason: safeForEcho(reason), menu })
  }

  /** Renders a template with the URLs; the variables are the cluster's, unless the data have others. */
  render<Name extends keyof typeof bootTemplates>(
    template: Name,
    data: Omit<DataOf<(typeof bootTemplates)[Name]>, 'url' | 'urls' | 'variables'> & {
      readonly variables?: VariableMap
    }
  ): string {
    const { urls, model, templates } = this.o
    const [url = ''] = urls
    return render(templates, template, { variables: model.cluster.variables, ...data, url, urls })
  }
}

const noTree = (name: string) =>
  `node ${name} has loader grub, and svcd keeps no TFTP tree: ` +
  'set [tftp] server = dnsmasq or tftpd-hpa in the ini'

/** Lists the files of a boot script, and the packed image; cached, as thousands of machines ask at once. */
const filesText = cachedPerObject(
  ({ kernelfile, initrdfile, imagefile }: NonNullable<EffectiveNode['image']>) =>
    `${kernelfile} ${initrdfile} ${imagefile ?? ''}`.trimEnd()
)

/** The machine at this address as an actor: no user; `who` is the console, or svcd for a detected one. */
const actorAt = (from: string, who = 'console') => ({ who, from, mayTakeAddresses: false })

/** Finds a node that has to prove what it booted, by a loader that measures nothing (rules 15.1). */
function unprovable(target: EffectiveNode, byDefault: Loader): { readonly reason: string } | undefined {
  const { settings, node } = target
  if (!settings.netboot || settings.trust !== 'require' || loaderOf(target, byDefault) === 'grub')
    return undefined
  return {
    reason:
      `node ${node.name} has trust = require, and its loader ipxe measures nothing: ` +
      `svcctl node set ${node.name} loader=grub, or trust=report`
  }
}

/** Makes a text safe for iPXE's echo, which would expand variables and end at comments and separators. */
export const safeForEcho = (text: string) => text.replace(/[^\x20-\x7e]|[$;&|#\\"']/g, '?')

/** Characters of a template error, which may quote the value of a variable. */
const longestFault = 300

/** Reason for a script that cannot be rendered: the error names the template and the place. */
const unrenderable = ({ message }: ServiceError) =>
  `${renderFailurePrefix}: ${message.slice(0, longestFault)}`

/** Returns why a node cannot boot, as one sentence; undefined if it can (rules 4.1). */
function obstacle(
  { node, settings, image, provision, network }: EffectiveNode,
  hasFile: (name: string) => boolean
): string | undefined {
  if (settings.osimage === null) return `node ${node.name} has no OS image`
  if (!image) return `OS image ${settings.osimage} does not exist`
  const isInstaller = installsPackages(settings.provision_method)
  for (const [what, field] of [
    ['kernel', 'kernelfile'],
    ['initramfs', 'initrdfile'],
    ...(isInstaller ? [] : [['packed image', 'imagefile'] as const])
  ] as const) {
    const file = image[field]
    if (file === undefined)
      return (
        missingFileReason(image, settings.osimagetag, `${what} (${field})`) +
        (isInstaller ? `: svcctl osimage set ${image.name} ${field}=FILE` : '')
      )
    if (!hasFile(file)) return `the ${what} (${field}) of OS image ${image.name}, ${file}, is missing`
  }
  if (provision?.ipaddress === undefined && !network?.dhcp)
    return (
      `node ${node.name} has neither an address nor DHCP on its ` +
      `interface ${settings.provision_interface}`
    )
  const [, vlan] = /(?:^|\s)vlan=0*([1-9]\d*)(?:\s|$)/.exec(provision?.options ?? '') ?? []
  return vlan === undefined
    ? undefined
    : `interface ${provision?.interface} of node ${node.name} is the tagged VLAN ${vlan}, and a node ` +
        'cannot be installed over one: name an untagged interface as "provision_interface"'
}

/** Sentence on a file that the image, or the node's tag of it, does not have. */
function missingFileReason(
  { name, imagefile }: NonNullable<EffectiveNode['image']>,
  tag: string,
  what: string
): string {
  const whose = tag === defaultTag ? `OS image ${name}` : `${tagReasonPrefix}${tag} of OS image ${name}`
  return `${whose} ${imagefile === undefined ? '' : packLacks}has no ${what}`
}

/** Whether a request comes from the network of a node's provision interface, or over loopback. */
function isAtHome({ prefix }: EffectiveNode, { address, loopback }: RequestSource): boolean {
  const from = parseAddress(address)
  return loopback || (prefix !== undefined && from !== undefined && contains(prefix, from))
}

/** Warns of a node that asks from outside its network, where its script may be wrong (rules 4.21). */
function wrongNetworkWarning(
  { node, provision, network, prefix }: EffectiveNode,
  { address, loopback }: RequestSource
): string | undefined {
  const from = parseAddress(address)
  // A request over loopback (a test, a tunnel, a virtual machine) does not show where the machine is.
  if (loopback || from === undefined || !network || !prefix || contains(prefix, from)) return undefined
  return (
    `node ${node.name} asks for its boot script from ${address}, outside network ${network.name} ` +
    `(${network.network}) of its interface ${provision?.interface}`
  )
}
