import { runSliced } from '../base/concurrency.js'
import { ServiceError } from '../base/errors.js'
import { isBmc } from '../model/cluster-index.js'
import { installsPackages, isInstaller } from '../model/effective.js'
import type { Model } from '../model/model.js'
import { isGuid } from '../model/names.js'
import type { InterfaceDoc } from '../model/types/interface.js'
import type { Templates } from '../template/templates.js'
import { type Boot, menuEntriesMax, safeForEcho } from './boot.js'
import { type MeasuredBoot, type MeasuredFile, measuredBoot } from './grub/measured.js'
import type { BootTree } from './grub/tree.js'
import { GrubError, kernelWords, quoted } from './grub/words.js'
import { render } from './render.js'
import type { bootTemplates } from './template-variables.js'

interface GrubOptions {
  readonly boot: Boot
  readonly model: Model
  readonly templates: Templates
  readonly tree: BootTree
  readonly urls: readonly string[]
  /** Whether a person at a console may choose a node. */
  readonly manual: boolean
  /** Address of the TFTP server as DHCP names it, '' if it names none. */
  readonly server: string
}

type GrubTemplate = Extract<keyof typeof bootTemplates, `boot/grub/${string}`>

const common = '/grub/grub.cfg'
const ofMac = (mac: string) => `${common}-01-${mac.toLowerCase().replaceAll(':', '-')}`
/** Stands for the MAC in arguments until they are quoted; a word of GRUB may hold it. */
const anyMac = '@MAC@'

/** The configurations of GRUB in the TFTP tree: one for all machines, and one for each MAC (rules 4.43). */
export class GrubConfigs {
  constructor(private readonly o: GrubOptions) {}

  /** Brings loaders, kernels and initramfs into the tree. Resolves with whether a content has changed. */
  async place(): Promise<boolean> {
    return this.o.tree.place(await runSliced(this.#files()))
  }

  /** Yields for each node; returns the configurations, by their names in the tree. */
  *configurations(): Generator<unknown, { files: { name: string; text: string }[] }> {
    const { model, manual } = this.o
    const all = [
      [common, this.#common()],
      ['/grub/disk.cfg', this.#render('boot/grub/templ_grub_disk.cfg', {})]
    ]
    const nodes: string[] = []
    for (const name of model.view.names('node')) {
      yield
      const { loader, target } = this.o.boot.byLoader(name)
      if (loader !== 'grub') continue
      for (const mac of macsOf(target.interfaces)) all.push([ofMac(mac), this.#text(name, mac)])
      const canTell = target.settings.netboot && !isInstaller(target.settings.provision_method)
      if (!manual || !canTell) continue
      nodes.push(name)
      all.push([`/nodes/${name}.cfg`, this.#text(name, anyMac)])
    }
    // A file of its own: what GRUB measures of other boots then does not change with the list.
    const shown = { nodes: nodes.slice(0, menuEntriesMax), all_nodes: nodes.length <= menuEntriesMax }
    if (manual) all.push(['/grub/nodes.cfg', this.#render('boot/grub/templ_grub_nodes.cfg', shown)])
    return { files: all.map(([name = '', text = '']) => ({ name: name.slice(1), text })) }
  }

  /** Returns what GRUB measures when a node boots, or why that is not known. */
  measure(name: string): MeasuredBoot | string {
    const { boot, server, tree } = this.o
    const { target, loader } = boot.byLoader(name)
    const [mac] = macsOf([target.provision, ...target.interfaces].flatMap(entry => entry ?? []))
    if (loader !== 'grub') return `the loader of node ${name} is not grub`
    if (!target.settings.netboot) return `node ${name} boots from its disk`
    if (mac === undefined) return `node ${name} has no MAC address`
    if (server === '') return 'DHCP names no TFTP server: set [dhcp] tftp_server'
    const lacks = this.obstacleOf(name)
    if (lacks !== undefined) return lacks
    const files = new Map(
      (['kernelfile', 'initrdfile'] as const).flatMap(field => {
        const file = target.image?.[field] ?? ''
        const sha256 = tree.sha256(file) ?? ''
        const what = field === 'kernelfile' ? 'the kernel' : 'the initramfs'
        return [[pathOf(sha256), { what: `${what} ${file}`, sha256 }] as const]
      })
    )
    const programs: MeasuredFile[] = []
    for (const [what, name = ''] of [
      ['shim', 'shimx64.efi'],
      ['GRUB', 'grubx64.efi'],
      ['the kernel', target.image?.kernelfile]
    ] as const) {
      const sha256 = tree.program(name)
      if (sha256 === undefined) return `${name} is no program for UEFI`
      programs.push({ what, name, sha256 })
    }
    try {
      return measuredBoot({
        ...{ server, mac, programs, file: path => files.get(path) },
        common: { path: common, text: this.#common() },
        node: { path: ofMac(mac), text: this.#text(name, mac) }
      })
    } catch (error) {
      if (error instanceof GrubError || error instanceof ServiceError) return error.message
      throw error
    }
  }

  /** Returns why GRUB cannot boot a node that iPXE could; undefined if it can. */
  obstacleOf(name: string): string | undefined {
    const made = this.#made(name, anyMac)
    return typeof made === 'string' ? made : undefined
  }

  *#files(): Generator<undefined, string[]> {
    const names = new Set<string>()
    for (const name of this.o.model.view.names('node')) {
      yield
      const { loader, reason, target } = this.o.boot.byLoader(name)
      const { kernelfile, initrdfile } = target.image ?? {}
      if (loader === 'grub' && target.settings.netboot && reason === undefined)
        for (const file of [kernelfile, initrdfile]) if (file !== undefined) names.add(file)
    }
    return [...names]
  }

  #common(): string {
    return this.#render('boot/grub/templ_grub.cfg', { manual: this.o.manual })
  }

  #text(name: string, mac: string): string {
    const { target } = this.o.boot.byLoader(name)
    if (!target.settings.netboot) return this.#render('boot/grub/templ_grub_disk.cfg', {})
    const made = this.#made(name, mac)
    if (typeof made !== 'string') return this.#render('boot/grub/templ_grub_node.cfg', made)
    return this.#render('boot/grub/templ_grub_error.cfg', {
      title: quoted(`svcd: node ${name}: this machine cannot be booted`),
      reason: quoted(`svcd: ${safeForEcho(made)}`)
    })
  }

  /** Returns the variables of a node's configuration, or why it cannot be booted. */
  #made(name: string, mac: string) {
    const { boot, tree } = this.o
    const { target, reason, argumentsFor } = boot.byLoader(name)
    if (reason !== undefined) return reason
    const { kernelfile = '', initrdfile = '' } = target.image ?? {}
    const [kernel, initrd] = [tree.sha256(kernelfile), tree.sha256(initrdfile)]
    for (const [file, sha256] of [
      [kernelfile, kernel],
      [initrdfile, initrd]
    ])
      if (sha256 === undefined) return `${file} of node ${name} is not in the TFTP tree yet`
    try {
      const words = kernelWords(argumentsFor(mac)).map(quoted)
      if (mac === anyMac && !installsPackages(target.settings.provision_method)) words.push('svc.manual=1')
      return {
        ...{ node: name, variables: target.variables, rescue: target.node.rescue !== undefined },
        kernel: pathOf(kernel),
        initrd: pathOf(initrd),
        arguments: words.join(' ').replaceAll(anyMac, '$' + '{net_default_mac}')
      }
    } catch (error) {
      if (error instanceof GrubError || error instanceof ServiceError) return `node ${name}: ${error.message}`
      throw error
    }
  }

  #render(template: GrubTemplate, data: object): string {
    const { urls, model, templates } = this.o
    const [url = ''] = urls
    return render(templates, template, { variables: model.cluster.variables, ...data, url, urls })
  }
}

const pathOf = (sha256 = '') => `/svcd/${sha256}`

/** The MACs of interfaces that boot: a GUID of InfiniBand is none that GRUB could tell. */
const macsOf = (interfaces: readonly InterfaceDoc[]) => [
  ...new Set(
    interfaces.flatMap(entry =>
      entry.macaddress === undefined || isBmc(entry) || isGuid(entry.macaddress) ? [] : [entry.macaddress]
    )
  )
]
