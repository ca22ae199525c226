import type { Controller } from '../../support/controller.js'
import { type Exported, exported, type Fields, type Nic } from '../../support/snapshot.js'

/** Of the inherited settings, those that name an object. */
const referring = { osimage: 'osimage', bmcsetupname: 'bmcsetup', group: 'group' } as const

const number = (address: string) => address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0)
const dotted = (address: number) =>
  [24, 16, 8, 0].map(bits => Math.floor(address / 2 ** bits) % 256).join('.')

/** First and last address of a CIDR, and of those that devices may have. */
function range(cidr: string) {
  const [base = '', length = ''] = cidr.split('/')
  const first = number(base)
  const last = first + 2 ** (32 - Number(length)) - 1
  const edge = Number(length) < 31 ? 1 : 0
  return { first, last, lowest: first + edge, highest: last - edge }
}

/** An address or a MAC somebody has. */
interface Held extends Nic {
  readonly owner: string
  readonly device: string
}

function held(config: Exported): Held[] {
  const nodes = Object.values(config.node ?? {}).flatMap(({ name, interfaces = [] }) =>
    interfaces.map(nic => ({ ...nic, owner: `node ${name} ${nic.interface}`, device: `node ${name}` }))
  )
  const devices = (['switch', 'otherdev'] as const).flatMap(type =>
    Object.values(config[type] ?? {}).map(doc => ({
      ...(doc as unknown as Nic),
      owner: `${type} ${doc.name}`,
      device: `${type} ${doc.name}`
    }))
  )
  return [...nodes, ...devices]
}

/**
 * Every rule between objects that an export breaks (rules 1.2, 2.4, 3.5, 3.6, 3.9). `deleted`: names of
 * interfaces that were deleted on some node by hand. `controller`: its address.
 */
export function brokenRules(config: Exported, controller: string, deleted: ReadonlySet<string>): string[] {
  const broken: string[] = []
  const has = (type: string, name: unknown) => Object.hasOwn(config[type] ?? {}, String(name))
  const networks = config.network ?? {}
  const gateways = Object.values(networks).map(({ gateway }) => gateway)

  for (const type of ['group', 'node'] as const)
    for (const doc of Object.values(config[type] ?? {})) {
      const who = `${type} ${doc.name}`
      for (const [field, to] of Object.entries(referring))
        if (doc[field] !== undefined && !has(to, doc[field]))
          broken.push(`${who}: ${to} ${doc[field]} is gone`)
      for (const { interface: nic, network } of doc.interfaces ?? [])
        if (network !== undefined && !has('network', network))
          broken.push(`${who} ${nic}: ${network} is gone`)
      const group = type === 'node' ? config.group?.[String(doc.group)] : undefined
      const [image, tag] = [doc.osimage ?? group?.osimage, doc.osimagetag ?? group?.osimagetag ?? 'default']
      const tags = Object.values(config.osimagetag ?? {})
      if (tag !== 'default' && !tags.some(({ osimage, name }) => osimage === image && name === tag))
        broken.push(`${who}: image ${image} has no tag ${tag}`)
    }
  for (const { name, osimage } of Object.values(config.osimagetag ?? {}))
    if (!has('osimage', osimage)) broken.push(`tag ${name}: image ${osimage} is gone`)
  for (const type of ['group', 'node'])
    for (const owner of Object.keys(config.secrets?.[type] ?? {}))
      if (!has(type, owner)) broken.push(`secrets of ${type} ${owner}, which is gone`)

  const owners = new Map<string, string>()
  for (const { owner, network, ipaddress, macaddress } of held(config)) {
    for (const what of [ipaddress, macaddress]) {
      if (what === undefined) continue
      const other = owners.get(what)
      if (other !== undefined) broken.push(`${what} belongs to ${other} and to ${owner}`)
      owners.set(what, owner)
    }
    if (network !== undefined && !has('network', network)) broken.push(`${owner}: network ${network} is gone`)
    if (ipaddress === undefined) continue
    const { lowest, highest } = range(String(networks[network ?? '']?.network ?? '0.0.0.0/32'))
    if (number(ipaddress) < lowest || number(ipaddress) > highest)
      broken.push(`${owner}: ${ipaddress} is no address for a device of ${network}`)
    if (gateways.includes(ipaddress)) broken.push(`${owner}: ${ipaddress} is a gateway`)
    if (ipaddress === controller) broken.push(`${owner}: ${ipaddress} is the controller's`)
  }
  for (const node of Object.values(config.node ?? {})) broken.push(...missing(config, node, deleted))
  return broken
}

/** A member has its group's interfaces but those deleted on it. */
function missing(config: Exported, node: Fields, deleted: ReadonlySet<string>): string[] {
  const own = (node.interfaces ?? []).map(nic => nic.interface)
  return interfacesOfGroup(config, node)
    .filter(name => !own.includes(name) && !(node.removed?.includes(name) && deleted.has(name)))
    .map(name => `node ${node.name} lacks interface ${name} of group ${node.group}`)
}

const interfacesOfGroup = (config: Exported, node: Fields) =>
  (config.group?.[String(node.group)]?.interfaces ?? []).map(nic => nic.interface)

/**
 * Returns interfaces that nodes keep of a group that has lost them. An import of groups or
 * nodes alone leaves the others as they are, so it may leave this.
 */
export function leftovers(config: Exported): string[] {
  return Object.values(config.node ?? {}).flatMap(node => {
    const wanted = interfacesOfGroup(config, node)
    const own = (node.interfaces ?? []).map(nic => nic.interface)
    const foreign = (node.interfaces ?? []).filter(nic => !nic.own && !wanted.includes(nic.interface))
    const removed = (node.removed ?? []).filter(name => own.includes(name) || !wanted.includes(name))
    return [
      ...foreign.map(
        nic => `node ${node.name} has ${nic.interface}, neither its own nor of group ${node.group}`
      ),
      ...removed.map(name => `node ${node.name} remembers ${name} as deleted for nothing`)
    ]
  })
}

/** What a node's change of its group must not do (rules 3.5). */
export function brokenMoves(before: Exported, after: Exported): string[] {
  const broken: string[] = []
  for (const node of Object.values(after.node ?? {})) {
    const was = before.node?.[node.name]
    if (!was || was.group === node.group) continue
    if (node.removed)
      broken.push(`node ${node.name} changed its group and remembers ${node.removed} as deleted`)
    for (const wanted of after.group?.[String(node.group)]?.interfaces ?? []) {
      const [then, now] = [was, node].map(doc =>
        doc.interfaces?.find(nic => nic.interface === wanted.interface)
      )
      const same = then?.network === wanted.network && then?.ipaddress !== undefined
      if (same && now?.ipaddress !== then.ipaddress)
        broken.push(`node ${node.name} lost ${then.ipaddress}, which its new group allows`)
      if (!then && wanted.network !== undefined && now?.ipaddress === undefined)
        broken.push(`node ${node.name} was given ${wanted.interface} without an address`)
    }
  }
  return broken
}

/** Files of secrets and tags without the object they belong to. */
export function orphans(files: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(files).filter(path => {
    const [, type, owner] = /^secrets\/(node|group)\.(.*)\.json$/.exec(path) ?? []
    const [, image] = /^osimagetag\/(.*):.*\.json$/.exec(path) ?? []
    if (owner !== undefined) return files[`${type}/${owner}.json`] === undefined
    return image !== undefined && files[`osimage/${image}.json`] === undefined
  })
}

/** What lists and look-ups answer against what they must, worked out by hand from the export. */
export async function wrongAnswers(c: Controller, controller: string): Promise<string[]> {
  const { config } = await exported(c)
  const wrong: string[] = []
  const compare = (what: string, found: unknown, expected: unknown) => {
    if (JSON.stringify(found) !== JSON.stringify(expected))
      wrong.push(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`)
  }
  const nodes = Object.values(config.node ?? {})
  for (const [type, field] of [
    ['group', 'group'],
    ['osimage', 'osimage'],
    ['bmcsetup', 'bmcsetupname']
  ] as const)
    for (const name of Object.keys(config[type] ?? {})) {
      const { body } = await c.get(`/config/${type}/${name}/_list`)
      const inForce = (node: Fields) => node[field] ?? config.group?.[String(node.group)]?.[field]
      const members = nodes.filter(node => inForce(node) === name).map(node => node.name)
      compare(`members of ${type} ${name}`, body.config[type][name].members.sort(), members.sort())
    }

  const taken = new Map(
    held(config).flatMap(({ ipaddress, device }) => (ipaddress ? [[ipaddress, device]] : []))
  )
  taken.set(controller, 'controller')
  const gateways = Object.values(config.network ?? {}).map(({ gateway }) => gateway)
  for (const [name, network] of Object.entries(config.network ?? {})) {
    const { first, last, lowest, highest } = range(String(network.network))
    const inside = [...taken.keys()].filter(address => number(address) >= first && number(address) <= last)
    const list = (await c.get(`/config/network/${name}/_list`)).body.taken
    const sorted = inside.sort((a, b) => number(a) - number(b))
    compare(
      `${name}/_list`,
      list.map((entry: { ipaddress: string }) => entry.ipaddress),
      sorted
    )

    const [begin, end] = [network.dhcp_range_begin, network.dhcp_range_end].map(text =>
      number(String(text ?? ''))
    )
    const isFree = (address: number) =>
      !taken.has(dotted(address)) &&
      !gateways.includes(dotted(address)) &&
      dotted(address) !== network.ns_ip &&
      !(network.dhcp && address >= (begin ?? 0) && address <= (end ?? 0))
    let free = lowest
    while (free <= highest && !isFree(free)) free++
    const { status, body } = await c.get(`/config/network/${name}/_nextfreeip`)
    compare(
      `${name}/_nextfreeip`,
      [status, body.nextip],
      free > highest ? [404, undefined] : [200, dotted(free)]
    )
  }
  return wrong
}
