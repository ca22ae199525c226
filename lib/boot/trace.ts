import { LRUCache } from 'lru-cache'
import type { FileDelivery, RequestContext, RequestSource } from '../base/request-source.js'
import { type Address, contains, parseAddress } from '../model/address.js'
import { isBmc } from '../model/cluster-index.js'
import { atNextBoot, type EffectiveNode } from '../model/effective.js'
import type { Model } from '../model/model.js'
import type { NodeDoc } from '../model/types/node.js'
import { isRescue, type Pack, type StepName } from '../monitor/boot-steps.js'
import type { Boots, ObservedStep } from '../monitor/boots.js'

/** A machine that asked for a boot script with a MAC that no node has. */
interface UnknownMachine {
  readonly mac: string
  readonly from: string
  /** Time of its last request, in milliseconds since 1970. */
  readonly last: number
}

/** A request, with the node whose token it carries, if any. */
interface BootRequest extends RequestContext {
  readonly caller?: { readonly kind: string; readonly node?: string }
}

const mostStrangers = 64

/**
 * Attributes the requests of booting machines to nodes: by the MAC in the path, by a node's token, else by
 * the source address. An address belongs to the node that last asked for its boot script from there, else to
 * the node configured with it. Requests of no node are not recorded (rules 6.7).
 */
export class Trace {
  /** Address → the node that last asked for its boot script from there, and the reverse. */
  readonly #askedFrom = new Map<string, string>()
  readonly #addressOf = new Map<string, string>()
  readonly #strangers = new LRUCache<string, UnknownMachine>({ max: mostStrangers })

  constructor(
    readonly model: Pick<Model, 'view' | 'effective'>,
    readonly boots: Boots,
    readonly now: () => number
  ) {}

  /** Records that a machine got a boot script of this node. */
  script(target: EffectiveNode, step: 'script' | 'no-script' | 'disk', about: string, visit: RequestContext) {
    const { name } = target.node
    const { address } = visit.source
    const number = parseAddress(address)
    const place = this.#originOf(target, visit.source, number)
    if (place === 'elsewhere' && visit.source.loopback) return
    // Requests from the address of another device belong to that device.
    if (place !== 'elsewhere' || !this.#isTaken(number)) this.#remember(name, address)
    this.boots.record(name, { step, about, from: address, place })
  }

  #remember(name: string, address: string): void {
    if (this.#askedFrom.get(address) === name) return
    const before = this.#addressOf.get(name)
    if (before !== undefined && this.#askedFrom.get(before) === name) this.#askedFrom.delete(before)
    this.#addressOf.set(name, address)
    this.#askedFrom.set(address, name)
  }

  /** Records a boot script request with a MAC that no node boots with. */
  unknown(mac: string, { source, headOnly }: RequestContext): void {
    if (headOnly) return
    const from = source.address
    for (const owner of this.model.view.index.macOwners(mac))
      if (owner.type === 'node' && isBmc(owner))
        return void this.boots.record(owner.name, { step: 'bmc', about: mac, from, place: 'elsewhere' })
    this.#strangers.set(mac, { mac, from, last: this.now() })
  }

  /** Returns the last machines whose MACs no node has yet, newest last. Lost at a restart. */
  unknownMachines(): readonly UnknownMachine[] {
    const { index } = this.model.view
    return [...this.#strangers.rvalues()].flatMap(one =>
      one && index.macOwners(one.mac).length === 0 ? [one] : []
    )
  }

  /** Records a request for a menu, or for the script that boots from the disk. */
  asked(step: 'menu' | 'disk', asking: BootRequest): void {
    this.#note(asking, () => step, '')
  }

  /** Records a request for a file below /boot; returns a function that records how it was sent. */
  bootFile(file: string, isServed: boolean, asking: BootRequest): ((sent: FileDelivery) => void) | undefined {
    return this.#note(asking, node => (isServed ? this.#kindOf(node, file) : 'no-file'), file)
  }

  /** Records a request for a packed image or torrent; returns a function that records how it was sent. */
  packedFile(file: string, asking: BootRequest): ((sent: FileDelivery) => void) | undefined {
    return this.#note(asking, () => (file.endsWith('.torrent') ? 'torrent' : 'image'), file)
  }

  /** Records that the node itself got its install script or kickstart. */
  install(node: NodeDoc, step: 'install' | 'kickstart', pack: Pack, { source }: RequestContext): void {
    const about = `${pack.osimage}:${pack.osimagetag} ${pack.pack}`
    this.boots.record(node.name, { step, about, from: source.address, place: 'node' })
    this.boots.recordAssigned(node.name, pack)
  }

  /** Records a refused install script. The request may have come from the node, or from a stranger. */
  refused(node: NodeDoc, reason: string, { source, headOnly }: RequestContext): void {
    if (headOnly) return
    const isOwn = this.#addressOf.get(node.name) === source.address
    const place = isOwn ? this.#originOf(this.model.effective(node), source) : 'elsewhere'
    if (place === 'elsewhere' && source.loopback) return
    this.boots.record(node.name, { step: 'refused', about: reason, from: source.address, place })
  }

  /** Records a state that the node reported with its own token. */
  report(node: string, state: string, { source }: RequestContext): void {
    this.boots.record(node, { step: 'report', about: state, from: source.address, place: 'node' })
    if (/^installer\.completed\b/.test(state) && !isRescue(state)) this.boots.recordInstalled(node)
  }

  /** Records the pack that the node reports to run. Rejects with StoreError if it cannot be stored. */
  async running(node: string, pack: Pack, { source }: RequestContext): Promise<void> {
    const now = await this.boots.recordRunning(node, pack)
    if (now !== undefined)
      this.boots.record(now, { step: 'running', about: pack.pack, from: source.address, place: 'node' })
  }

  #note(asking: BootRequest, stepOf: (node: NodeDoc) => StepName, about: string) {
    const { source, caller, headOnly } = asking
    const node = headOnly ? undefined : this.#nodeOf(asking)
    if (!node) return undefined
    const place = caller?.kind === 'node' ? 'node' : this.#originOf(this.model.effective(node), source)
    const noted = this.boots.record(node.name, { step: stepOf(node), about, from: source.address, place })
    return (sent: FileDelivery) => this.boots.recordDelivery(node.name, noted, sent)
  }

  #nodeOf({ source, caller }: BootRequest): NodeDoc | undefined {
    const { view } = this.model
    if (caller?.kind === 'node') return view.get('node', caller.node ?? '')
    const asked = this.#askedFrom.get(source.address)
    const node = asked === undefined ? undefined : view.get('node', asked)
    if (node) return node
    const address = parseAddress(source.address)
    const [owner] = address === undefined ? [] : view.index.addressOwners(address)
    return owner?.type === 'node' && !isBmc(owner) ? view.get('node', owner.name) : undefined
  }

  /** Returns how certain it is that an address is the node's (rules 6.7). */
  #originOf(
    { node, network, prefix }: EffectiveNode,
    { address: text }: RequestSource,
    address = parseAddress(text)
  ): ObservedStep['place'] {
    for (const entry of node.interfaces ?? []) if (entry.ipaddress === text && !isBmc(entry)) return 'node'
    if (address === undefined || !network || !prefix || !contains(prefix, address)) return 'elsewhere'
    return this.#isTaken(address) ? 'elsewhere' : 'near'
  }

  /** Whether any device has the address. */
  #isTaken(address: Address | undefined): boolean {
    return address !== undefined && this.model.view.index.usedAddresses.has(address)
  }

  /** Classifies a file by the node's image, as it is now or was when the node got its script. */
  #kindOf(node: NodeDoc, file: string): 'kernel' | 'initramfs' | 'file' {
    const { image } = atNextBoot(this.model.view, this.model.effective(node))
    const [kernel, initramfs] = this.boots.lastStep(node.name, 'script')?.about.split(' ') ?? []
    if (file === image?.kernelfile || file === kernel) return 'kernel'
    return file === image?.initrdfile || file === initramfs ? 'initramfs' : 'file'
  }
}
