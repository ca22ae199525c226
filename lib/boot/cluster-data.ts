import { isDeepStrictEqual } from 'node:util'
import { runFairly } from '../base/concurrency.js'
import { maps, text, textMap, texts } from '../base/variables.js'
import type { Model } from '../model/model.js'
import { nameServersOf } from '../model/networks.js'
import type { Change } from '../model/stored.js'
import type { InterfaceDoc } from '../model/types/interface.js'

const clusterInterface = {
  title: 'interface of a node of the cluster',
  meaning: 'One interface of a node; one of the BMC is called BMC.',
  variables: {
    interface: text('its name'),
    network: text("the name of its network, '' without one"),
    ipaddress: text("'' without a fixed address")
  }
} as const
const clusterNode = {
  title: 'node of the cluster',
  meaning: 'A node, as the files of all nodes may see it.',
  variables: {
    name: text('its name'),
    hostname: text('`<node>.<domain>`, the bare name without a domain'),
    group: text("name of its group, '' without one"),
    ipaddress: text("address of its provision interface, '' without one"),
    interfaces: maps(clusterInterface, 'its interfaces'),
    variables: textMap('its variables in force')
  }
} as const
const clusterGroup = {
  title: 'group of the cluster',
  meaning: 'A group, as the files of all nodes may see it.',
  variables: {
    name: text('its name'),
    nodes: texts('names of its nodes'),
    variables: textMap('its variables in force')
  }
} as const
const clusterNetwork = {
  title: 'network of the cluster',
  meaning: 'A network, as the files of all nodes may see it.',
  variables: {
    name: text('its name'),
    network: text('such as 10.141.0.0/16'),
    gateway: text("'' without one"),
    nameserver: text("addresses of its name servers, with blanks between them; '' without one"),
    ntp_server: text("its NTP servers, '' without any")
  }
} as const

/** Variables with which file templates see the whole cluster (rules 4.25). */
export const clusterVariables = {
  nodes: maps(clusterNode, 'all nodes, by name'),
  groups: maps(clusterGroup, 'all groups, by name'),
  networks: maps(clusterNetwork, 'all networks, by name')
} as const

/** Whether a template may use these variables. */
export const seesCluster = (template: string): boolean => /\b(?:nodes|groups|networks)\b/.test(template)

/** Fields of objects that the text contains. */
const usedFields: Readonly<Record<string, readonly string[]>> = {
  node: ['name', 'group', 'domain', 'provision_interface', 'interfaces', 'variables'],
  group: ['name', 'domain', 'provision_interface', 'interfaces', 'variables'],
  network: ['name', 'network', 'gateway', 'ns_ip', 'ntp_server']
}

/** An interface without its MAC, which may be learnt during a boot. */
const clusterInterfaceOf = ({ interface: name, network = '', ipaddress = '' }: InterfaceDoc) => ({
  interface: name,
  network,
  ipaddress
})

const comparable = (field: string, value: unknown) =>
  field === 'interfaces' ? ((value ?? []) as readonly InterfaceDoc[]).map(clusterInterfaceOf) : value

/** The cluster as JSON text in parts, with a version that is unique to its content. */
export interface ClusterText {
  readonly version: number
  readonly parts: readonly string[]
}

/** Caches the cluster as text. It is made on demand, in slices, and again after a change. */
export class ClusterData {
  #version = 0
  #cached: Promise<ClusterText> | undefined

  constructor(private readonly model: Model) {}

  /** Drops the text if changes affect its content. It contains no reports of nodes. */
  changed(changes: readonly Pick<Change, 'type' | 'before' | 'after'>[]): void {
    const isHeld = changes.some(({ type, before = {}, after = {} }) => {
      const [was, is] = [before, after] as readonly Readonly<Record<string, unknown>>[]
      const differs = (field: string) =>
        !isDeepStrictEqual(comparable(field, was?.[field]), comparable(field, is?.[field]))
      return type === 'cluster' || usedFields[type]?.some(differs)
    })
    if (!isHeld) return
    this.#version++
    this.#cached = undefined
  }

  isCurrent = (version: number): boolean => version === this.#version

  /** Returns the current text. Rejects with an Error if the cluster has more than `most` characters. */
  text(most: number): Promise<ClusterText> {
    const version = this.#version
    this.#cached ??= runFairly(this.#make(most)).then(parts => ({ version, parts }))
    return this.#cached
  }

  // In parts: joining one long text would block the event loop.
  *#make(most: number): Generator<void, string[]> {
    const { model } = this
    const { view, cluster } = model
    const node = (name: string) => {
      const doc = view.get('node', name)
      if (!doc) return undefined
      const { hostname, provision, interfaces, variables } = model.effective(doc)
      const ipaddress = provision?.ipaddress ?? ''
      return {
        ...{ name, hostname, group: doc.group ?? '', ipaddress },
        ...{ interfaces: interfaces.map(clusterInterfaceOf), variables }
      }
    }
    const group = (name: string) => {
      const nodes = [...(view.index.members(name)?.all.values ?? [])]
      return { name, nodes, variables: { ...cluster.variables, ...view.get('group', name)?.variables } }
    }
    const network = (name: string) => {
      const stored = view.get('network', name)
      const { network = '', gateway = '', ntp_server = '' } = stored ?? {}
      return { name, network, gateway, nameserver: nameServersOf(stored, cluster).join(' '), ntp_server }
    }
    const parts: string[] = []
    let characters = 0
    for (const [type, entryOf] of Object.entries({ node, group, network })) {
      parts.push(`${parts.length === 0 ? '{' : ','}"${type}s":[`)
      let separator = ''
      for (const name of [...view.names(type as 'node')]) {
        yield
        const entry = entryOf(name)
        if (!entry) continue
        const json = JSON.stringify(entry)
        characters += json.length
        if (characters > most)
          throw new Error(`the nodes, groups and networks have more than ${most} characters`)
        parts.push(separator + json)
        separator = ','
      }
      parts.push(']')
    }
    return [...parts, '}']
  }
}
