import { type Address, contains, parseAddress } from '../model/address.js'
import { asBooted, type EffectiveNode } from '../model/effective.js'
import { isBmc } from '../model/index.js'
import type { Model } from '../model/model.js'
import type { NodeDoc } from '../model/types/node.js'
import { isRescue, type Pack, type StepName } from '../monitor/boot-steps.js'
import type { Boots, Noted } from '../monitor/boots.js'
import type { Sent, Source, Visit } from '../source.js'

/** A machine whose MAC no node has, that asked for a boot script. */
export interface Stranger {
  readonly mac: string
  readonly from: string
  /** When it last asked; milliseconds since 1970. */
  readonly last: number
}

/** Who asks: a visit, and the node whose token it carries, if one. */
export interface Asking extends Visit {
  readonly caller?: { readonly kind: string; readonly node?: string }
}

const mostStrangers = 64

/**
 * Puts what booting machines ask for to nodes: by the MAC in the path, by a node's token, else by the source address. An
 * address is that of the node that last asked for its boot script from there, else of the node that has it. What cannot be
 * put to a node is not kept (rules 6.7).
 */
export class Trace {
  /** The node that last asked for its boot script from an address, and that address of each node. */
  readonly #askedFrom = new Map<string, string>()
  readonly #addressOf = new Map<string, string>()
  readonly #strangers = new Map<string, Stranger>()

  constructor(
    readonly model: Pick<Model, 'view' | 'effective'>,
    readonly boots: Boots,
    readonly now: () => number
  ) {}

  /** A machine asked for the boot script of this node, and gets this. */
  script(target: EffectiveNode, step: 'script' | 'no-script' | 'disk', about: string, visit: Visit): void {
    const { name } = target.node
    const { address } = visit.source
    const number = parseAddress(address)
    const place = this.#place(target, visit.source, number)
    if (place === 'elsewhere' && visit.source.loopback) return
    // What comes from the address of another device belongs to that one.
    if (place !== 'elsewhere' || !this.#isTaken(number)) this.#remember(name, address)
    this.boots.note(name, { step, about, from: address, place })
  }

  #remember(name: string, address: string): void {
    if (this.#askedFrom.get(address) === name) return
    const before = this.#addressOf.get(name)
    if (before !== undefined && this.#askedFrom.get(before) === name) this.#askedFrom.delete(before)
    this.#addressOf.set(name, address)
    this.#askedFrom.set(address, name)
  }

  /** A machine whose MAC no node boots with asked for its boot script. */
  unknown(mac: string, { source, headOnly }: Visit): void {
    if (headOnly) return
    const from = source.address
    for (const { type, name, interface: on } of this.model.view.index.macOwners(mac))
      if (type === 'node' && isBmc({ ...(on === undefined ? {} : { interface: on }) }))
        return void this.boots.note(name, { step: 'bmc', about: mac, from, place: 'elsewhere' })
    this.#strangers.delete(mac)
    this.#strangers.set(mac, { mac, from, last: this.now() })
    const [oldest] = this.#strangers.keys()
    if (this.#strangers.size > mostStrangers && oldest !== undefined) this.#strangers.delete(oldest)
  }

  /** The machines that asked last and whose MACs no node has yet, the newest last. Not kept over a restart. */
  strangers(): readonly Stranger[] {
    const { index } = this.model.view
    return [...this.#strangers.values()].filter(({ mac }) => index.macOwners(mac).length === 0)
  }

  /** A machine asked for a menu, or for the script that boots from the disk. */
  asked(step: 'menu' | 'disk', asking: Asking): void {
    if (!asking.headOnly) this.#note(asking, step, '')
  }

  /** A machine asked for a file below /boot; what is returned is told how it was sent. */
  bootFile(file: string, isServed: boolean, asking: Asking): ((sent: Sent) => void) | undefined {
    const node = this.#nodeOf(asking)
    if (!node || asking.headOnly) return undefined
    return this.#noteOf(node, asking, isServed ? this.#kindOf(node, file) : 'no-file', file)
  }

  /** A machine asked for a packed image or its torrent; what is returned is told how it was sent. */
  packedFile(file: string, asking: Asking): ((sent: Sent) => void) | undefined {
    if (asking.headOnly) return undefined
    return this.#note(asking, file.endsWith('.torrent') ? 'torrent' : 'image', file)
  }

  /** The node itself got its install script or kickstart. */
  install(node: NodeDoc, step: 'install' | 'kickstart', pack: Pack, { source }: Visit): void {
    const about = `${pack.osimage}:${pack.osimagetag} ${pack.pack}`
    this.boots.note(node.name, { step, about, from: source.address, place: 'node' })
    this.boots.given(node.name, pack)
  }

  /** The node's install script was refused: to the machine that got its boot script, or to a stranger. */
  refused(node: NodeDoc, reason: string, { source, headOnly }: Visit): void {
    if (headOnly) return
    const isOwn = this.#addressOf.get(node.name) === source.address
    const place = isOwn ? this.#place(this.model.effective(node), source) : 'elsewhere'
    if (place === 'elsewhere' && source.loopback) return
    this.boots.note(node.name, { step: 'refused', about: reason, from: source.address, place })
  }

  /** The node reported a state, with its own token. */
  report(node: string, state: string, { source }: Visit): void {
    this.boots.note(node, { step: 'report', about: state, from: source.address, place: 'node' })
    if (/^installer\.completed\b/.test(state) && !isRescue(state)) this.boots.completed(node)
  }

  /** The node says which pack its system was made from. Rejects with StoreError when that cannot be kept. */
  async running(node: string, pack: Pack, { source }: Visit): Promise<void> {
    const now = await this.boots.runs(node, pack)
    if (now !== undefined)
      this.boots.note(now, { step: 'running', about: pack.pack, from: source.address, place: 'node' })
  }

  #note(asking: Asking, step: StepName, about: string): ((sent: Sent) => void) | undefined {
    const node = this.#nodeOf(asking)
    return node && this.#noteOf(node, asking, step, about)
  }

  #noteOf(node: NodeDoc, asking: Asking, step: StepName, about: string): (sent: Sent) => void {
    const { source, caller } = asking
    const place = caller?.kind === 'node' ? 'node' : this.#place(this.model.effective(node), source)
    const noted = this.boots.note(node.name, { step, about, from: source.address, place })
    return sent => this.boots.sent(node.name, noted, sent)
  }

  #nodeOf({ source, caller }: Asking): NodeDoc | undefined {
    const { view } = this.model
    if (caller?.kind === 'node') return view.get('node', caller.node ?? '')
    const asked = this.#askedFrom.get(source.address)
    const node = asked === undefined ? undefined : view.get('node', asked)
    if (node) return node
    const address = parseAddress(source.address)
    const [owner] = address === undefined ? [] : view.index.addressOwners(address)
    return owner?.type === 'node' && !isBmc({ interface: owner.interface ?? '' })
      ? view.get('node', owner.name)
      : undefined
  }

  /**
   * How sure it is that an address is the node's (rules 6.7).
   */
  #place(
    { node, network, prefix }: EffectiveNode,
    { address: text }: Source,
    address = parseAddress(text)
  ): Noted['place'] {
    for (const entry of node.interfaces ?? []) if (entry.ipaddress === text && !isBmc(entry)) return 'node'
    if (address === undefined || !network || !prefix || !contains(prefix, address)) return 'elsewhere'
    return this.#isTaken(address) ? 'elsewhere' : 'near'
  }

  /** Whether a device has the address. */
  #isTaken(address: Address | undefined): boolean {
    return address !== undefined && this.model.view.index.taken.has(address)
  }

  /** A file of the image that the node has now, or had when it got its script. */
  #kindOf(node: NodeDoc, file: string): 'kernel' | 'initramfs' | 'file' {
    const { image } = asBooted(this.model.view, this.model.effective(node))
    const [kernel, initramfs] = this.boots.lastStep(node.name, 'script')?.about.split(' ') ?? []
    if (file === image?.kernelfile || file === kernel) return 'kernel'
    return file === image?.initrdfile || file === initramfs ? 'initramfs' : 'file'
  }
}
