import { runSliced } from '../base/concurrency.js'
import { ServiceError } from '../base/errors.js'
import { macsOf } from '../model/cluster-index.js'
import { installsPackages, isInstaller } from '../model/effective.js'
import type { Model } from '../model/model.js'
import { isGuid } from '../model/names.js'
import type { InterfaceDoc } from '../model/types/interface.js'
import { type Boot, menuEntriesMax, safeForEcho } from './boot.js'
import {
  GrubError,
  kernelWords,
  type MeasuredBoot,
  type MeasuredFile,
  measuredBoot,
  quoted
} from './grub/script.js'
import type { BootTree } from './grub/tree.js'

interface GrubOptions {
  readonly boot: Boot
  readonly model: Model
  readonly tree: BootTree
  /** Whether a person at a console may choose a node. */
  readonly manual: boolean
  /** Address of the TFTP server as DHCP names it, '' if it names none. */
  readonly server: string
}

type Architecture = (typeof architectures)[number]
type ByLoader = ReturnType<Boot['byLoader']>

const common = '/grub/grub.cfg'
const ofMac = (mac: string) => `${common}-01-${mac.toLowerCase().replaceAll(':', '-')}`
/** Stands for the MAC in arguments until they are quoted; a word of GRUB may hold it. */
const anyMac = '@MAC@'

/** svcd does not know which one a node has: it may boot as either does. */
const architectures = [
  // The keys are names for people; a boot measures the loaders in this order.
  { platform: 'x86_64-efi', loaders: { shim: 'shimx64.efi', GRUB: 'grubx64.efi' } },
  { platform: 'arm64-efi', loaders: { shim: 'shimaa64.efi', GRUB: 'grubaa64.efi' } }
] as const

/** The configurations of GRUB in the TFTP tree: one for all machines, and one for each MAC (rules 4.43). */
export class GrubConfigs {
  /** The texts that GRUB gets now, by their paths. */
  #inForce: ReadonlyMap<string, string> = new Map()

  constructor(private readonly o: GrubOptions) {}

  /** Brings loaders, kernels and initramfs into the tree. Resolves with whether a content has changed. */
  async place(): Promise<boolean> {
    return this.o.tree.place(await runSliced(this.#files()))
  }

  /** Yields for each node; returns the configurations, by their names in the tree. */
  *configurations(): Generator<unknown, { files: { name: string; text: string }[] }> {
    const { boot, model, manual } = this.o
    const all = [
      [common, boot.render('boot/grub/templ_grub.cfg', { manual })],
      ['/grub/disk.cfg', boot.render('boot/grub/templ_grub_disk.cfg', {})]
    ]
    const nodes: string[] = []
    // A copy: a node that goes at a pause would move the others up, past the loop.
    for (const name of [...model.view.names('node')]) {
      yield
      const by = this.#byGrub(name)
      if (!by) continue
      const { settings, interfaces } = by.target
      for (const mac of bootMacs(interfaces)) all.push([ofMac(mac), this.#text(by, mac)])
      if (!manual || !settings.netboot || isInstaller(settings.provision_method)) continue
      nodes.push(name)
      if (nodes.length <= menuEntriesMax) all.push([`/nodes/${name}.cfg`, this.#text(by, anyMac)])
    }
    // A file of its own: what GRUB measures of other boots then does not change with the list.
    const shown = { nodes: nodes.slice(0, menuEntriesMax), all_nodes: nodes.length <= menuEntriesMax }
    if (manual) all.push(['/grub/nodes.cfg', boot.render('boot/grub/templ_grub_nodes.cfg', shown)])
    return { files: all.map(([name = '', text = '']) => ({ name: name.slice(1), text })) }
  }

  /** Takes the configurations that have come into force. */
  inForce(files: readonly { readonly name: string; readonly text: string }[]): void {
    this.#inForce = new Map(files.map(({ name, text }) => [`/${name}`, text]))
  }

  /** Returns what GRUB measures at a node's boot now, for each MAC that it may have, or why it is unknown. */
  measure(name: string): MeasuredBoot[] | string {
    const by = this.o.boot.byLoader(name)
    const { target, loader } = by
    if (this.o.server === '') return 'DHCP names no TFTP server: set [dhcp] tftp_server'
    const macs = bootMacs([target.provision, ...target.interfaces].flatMap(entry => entry ?? []))
    const found = [...macs].flatMap(mac => architectures.map(of => this.#measureMac(mac, of)))
    const boots = found.filter(one => typeof one !== 'string')
    if (boots.length > 0) return boots
    // The objects tell why better than the texts do.
    if (loader !== 'grub') return `the loader of node ${name} is not grub`
    if (!target.settings.netboot) return `node ${name} boots from its disk`
    const lacks = this.#made(by, anyMac)
    if (typeof lacks === 'string') return lacks
    return found.find(one => typeof one === 'string') ?? `node ${name} has no MAC address`
  }

  #measureMac(mac: string, { platform, loaders }: Architecture): MeasuredBoot | string {
    const { server, tree } = this.o
    const path = ofMac(mac)
    const [shared, own] = [common, path].map(one => this.#inForce.get(one))
    if (shared === undefined || own === undefined) return `${path} is not in the TFTP tree yet`
    const programs: MeasuredFile[] = []
    for (const [what, name] of Object.entries(loaders)) {
      const sha256 = tree.loader(name)
      if (sha256 === undefined) return `${name} is no program for UEFI`
      programs.push({ what, name, sha256 })
    }
    try {
      const measured = measuredBoot({
        ...{ server, mac, platform, programs, file: path => this.#content(path) },
        common: { path: common, text: shared },
        node: { path, text: own }
      })
      return measured.programs.length > programs.length ? measured : `${path} starts no kernel`
    } catch (error) {
      if (error instanceof GrubError) return error.message
      throw error
    }
  }

  /** Finds a content by the path in a configuration: its hash is its name. */
  #content(path: string) {
    const [, sha256] = /^\/svcd\/([0-9a-f]{64})$/.exec(path) ?? []
    return sha256 === undefined ? undefined : { sha256, ...this.o.tree.content(sha256) }
  }

  /** Returns why GRUB cannot boot a node that iPXE could; undefined if it can. */
  obstacleOf(name: string): string | undefined {
    const made = this.#made(this.o.boot.byLoader(name), anyMac)
    return typeof made === 'string' ? made : undefined
  }

  *#files(): Generator<undefined, string[]> {
    const names = new Set<string>()
    for (const name of [...this.o.model.view.names('node')]) {
      yield
      const by = this.#byGrub(name)
      const { kernelfile, initrdfile } = by?.target.image ?? {}
      if (by?.target.settings.netboot && by.reason === undefined)
        for (const file of [kernelfile, initrdfile]) if (file !== undefined) names.add(file)
    }
    return [...names]
  }

  /** Finds a node whose loader is GRUB; it may have been deleted or renamed since its name was listed. */
  #byGrub(name: string): ByLoader | undefined {
    const { boot, model } = this.o
    const by = model.view.get('node', name) && boot.byLoader(name)
    return by?.loader === 'grub' ? by : undefined
  }

  #text(by: ByLoader, mac: string): string {
    const { boot } = this.o
    const { target } = by
    if (!target.settings.netboot) return boot.render('boot/grub/templ_grub_disk.cfg', {})
    const made = this.#made(by, mac)
    if (typeof made !== 'string') return boot.render('boot/grub/templ_grub_node.cfg', made)
    return boot.render('boot/grub/templ_grub_error.cfg', {
      title: quoted(`svcd: node ${target.node.name}: this machine cannot be booted`),
      reason: quoted(`svcd: ${safeForEcho(made)}`)
    })
  }

  /** Returns the variables of a node's configuration, or why it cannot be booted. */
  #made({ target, reason, argumentsFor }: ByLoader, mac: string) {
    const { tree } = this.o
    const { name } = target.node
    if (reason !== undefined) return reason
    const { kernelfile = '', initrdfile = '' } = target.image ?? {}
    const lacking = [kernelfile, initrdfile].find(file => tree.sha256(file) === undefined)
    if (lacking !== undefined) return `${lacking} of node ${name} is not in the TFTP tree yet`
    try {
      const words = kernelWords(argumentsFor(mac)).map(quoted)
      if (mac === anyMac && !installsPackages(target.settings.provision_method)) words.push('svc.manual=1')
      return {
        ...{ node: name, variables: target.variables, rescue: target.node.rescue !== undefined },
        kernel: pathOf(tree.sha256(kernelfile)),
        initrd: pathOf(tree.sha256(initrdfile)),
        arguments: words.join(' ').replaceAll(anyMac, '$' + '{net_default_mac}')
      }
    } catch (error) {
      if (error instanceof GrubError || error instanceof ServiceError) return `node ${name}: ${error.message}`
      throw error
    }
  }
}

const pathOf = (sha256 = '') => `/svcd/${sha256}`

/** The MACs that GRUB can tell: a GUID of InfiniBand is none. */
const bootMacs = (interfaces: readonly InterfaceDoc[]) =>
  new Set(macsOf(interfaces).filter(mac => !isGuid(mac)))
