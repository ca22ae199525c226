import { FAILSAFE_SCHEMA, load, mergeTag, Schema, YAMLException } from 'js-yaml'
import type { Card, Plan } from './plan.js'

/** A map of the file; all that is no map or list is a text. */
interface Map_ {
  [key: string]: Value
}
type Value = string | Value[] | Map_

/** Texts alone: `no` is no boolean, and 12:34:56:12:34:56 no number. */
const schema = new Schema([...FAILSAFE_SCHEMA.tags, mergeTag])
/** Bounds of a file that was made to be costly: aliases, depth, and steps while profiles are put together. */
const bounds = { maxAliases: 10_000, maxDepth: 20, maxTotalMergeKeys: 1_000_000 }
const MOST_STEPS = 20_000_000
const MOST_PROFILES = 1000

type Lose = (field: string, why?: string) => void

const isMap = (value: Value | undefined): value is Map_ => typeof value === 'object' && !Array.isArray(value)
const mapOf = (value: Value | undefined): Map_ => (isMap(value) ? value : {})
const textOf = (value: Value | undefined): string | undefined =>
  typeof value === 'string' && !['', '~', 'null'].includes(value.trim()) ? value.trim() : undefined
const listOf = (value: Value | undefined, separator: RegExp): string[] =>
  (Array.isArray(value) ? value : [value ?? ''])
    .flatMap(one => (textOf(one) ?? '').split(separator))
    .filter(Boolean)
const isYes = (value: Value | undefined) => /^(?:true|yes|1|t)$/i.test(textOf(value) ?? '')
/** Without those that begin with ~, and the ones that these take out. */
const cleaned = (list: readonly string[]) =>
  list.filter(one => !one.startsWith('~') && !list.includes(`~${one}`))

/** Older spellings of keys, with the map that they are in today. */
const older: Readonly<Record<string, readonly [string, string?]>> = {
  ...{ 'container name': ['image name'], keys: ['tags'] },
  ...Object.fromEntries(['args', 'version', 'override'].map(key => [`kernel ${key}`, ['kernel', key]])),
  ...Object.fromEntries(
    ['username', 'password', 'ipaddr', 'netmask', 'port', 'gateway', 'interface', 'escapechar', 'write'].map(
      key => [`ipmi ${key}`, ['ipmi', key]]
    )
  )
}

/** Fields that are read, and values of others that change nothing here. */
const ofNodes = /^(?:profiles|comment|asset key|image name|kernel|ipmi|tags|network devices|primary network)$/
const ofCards = /^(?:type|onboot|device|hwaddr|ipaddr|ipcidr|netmask|gateway|mtu|tags|primary|default)$/
const ofBmcs = /^(?:username|password|ipaddr|netmask|gateway|port|write|tags|interface)$/
const same: Readonly<Record<string, string>> = {
  ...{ 'ipxe template': 'default', init: '/sbin/init', root: 'initramfs' },
  ...{ discoverable: 'false', disabled: 'false' }
}

/** Puts a map over another one as Warewulf does: maps are merged, lists joined, texts replaced. */
function merged(under: Map_, over: Map_, count: () => void): Map_ {
  const all = new Map(Object.entries(under))
  for (const [key, value] of Object.entries(over)) {
    count()
    const below = all.get(key)
    if (isMap(value)) all.set(key, merged(mapOf(below), value, count))
    else if (Array.isArray(value)) all.set(key, [...(Array.isArray(below) ? below : []), ...value])
    else if (textOf(value) !== undefined) all.set(key, value)
    for (let i = 0; Array.isArray(value) && i < value.length; i++) count()
  }
  return Object.fromEntries(all)
}

/** Reads `nodes.conf` of Warewulf 4 into a plan. Throws Error with the line, and never with a text of it. */
export function readWarewulf(text: string, plan: Plan, mostSteps = MOST_STEPS): void {
  let steps = 0
  const count = () => {
    if (++steps > mostSteps) throw new Error('its profiles take too many steps to put together')
  }
  const file = mapOf(parsed(text))
  if (!isMap(file.nodes) && !isMap(file.nodeprofiles))
    throw new Error('is no nodes.conf of Warewulf 4: "nodes" is missing, which /etc/warewulf/nodes.conf has')
  for (const key of Object.keys(file))
    if (!['nodes', 'nodeprofiles', 'WW_INTERNAL'].includes(key)) plan.lose('section', key)
  const profiles = new Map(
    Object.entries(mapOf(file.nodeprofiles)).map(([name, one]) => [name, today(mapOf(one))])
  )
  const orders = new Map<string, readonly string[]>()
  /** Profiles in the order of Warewulf: those of a profile come before it, and each one once. */
  const expanded = (names: readonly string[], seen: Set<string>): string[] =>
    names.flatMap(name => {
      count()
      if (name.startsWith('~')) return [name]
      if (seen.has(name)) return []
      if (seen.add(name).size > MOST_PROFILES)
        throw new Error(`a node has more than ${MOST_PROFILES} profiles`)
      return [...expanded(listOf(profiles.get(name)?.profiles, /,/), seen), name]
    })
  const combined = new Map<string, Map_>()
  for (const [name, given] of Object.entries(mapOf(file.nodes))) {
    const own = today(mapOf(given))
    // Up to 4.5 a node without profiles had this one.
    const byDefault = 'WW_INTERNAL' in file && profiles.has('default') ? ['default'] : []
    const itsOwn = listOf(own.profiles, /,/)
    const listed = itsOwn.length > 0 ? itsOwn : byDefault
    const names = cleaned(listed)
    const key = JSON.stringify(listed)
    const order = orders.get(key) ?? cleaned(expanded(listed, new Set()))
    orders.set(key, order)
    const below =
      combined.get(key) ??
      order.reduce((under, one) => {
        if (!profiles.has(one)) plan.note('node', name, `its profile ${one} is not in the file`)
        const { comment: _, profiles: __, ...fields } = profiles.get(one) ?? {}
        return merged(under, fields, count)
      }, {} as Map_)
    combined.set(key, below)
    readNode(plan, name, names.length > 0 ? names.join('-') : undefined, merged(below, own, count))
  }
  const used = new Set([...orders.values()].flat())
  for (const [name, { comment }] of profiles) {
    if (textOf(comment) !== undefined) plan.lose('profile', name, 'field "comment"')
    if (!used.has(name)) plan.lose('profile', name, '', 'is left out: no node has it')
  }
}

function parsed(text: string): Value {
  try {
    return load(text, { schema, ...bounds }) as Value
  } catch (error) {
    // Its message shows the lines around, in which a password may be.
    if (!(error instanceof YAMLException)) throw error
    throw new Error(`line ${(error.mark?.line ?? 0) + 1}: ${error.reason}`)
  }
}

/** Returns the fields of a node or a profile under their names of today. */
function today(given: Map_): Map_ {
  const all = new Map<string, Value>()
  for (const [key, value] of Object.entries(given)) {
    const [name, inner] = (Object.hasOwn(older, key) ? older[key] : undefined) ?? [key]
    const known = all.get(name)
    if (inner !== undefined) all.set(name, { [inner]: value, ...mapOf(known) })
    else if (isMap(value)) all.set(name, { ...mapOf(known), ...value })
    else if (name === key || known === undefined) all.set(name, value)
  }
  return Object.fromEntries(all)
}

/** Adds a node with the fields that its profiles and itself give. */
function readNode(plan: Plan, name: string, group: string | undefined, all: Map_): void {
  const lose: Lose = (field, why) => plan.lose('node', name, `field "${field}"`, why)
  const bmc = mapOf(all.ipmi)
  const [username, password, address] = [textOf(bmc.username), textOf(bmc.password), textOf(bmc.ipaddr)]
  const [image, args] = [textOf(all['image name']), mapOf(all.kernel).args]
  const { vlan, ...tags } = mapOf(bmc.tags)
  for (const [key, value] of Object.entries(all))
    if (!ofNodes.test(key) && textOf(value) !== (Object.hasOwn(same, key) ? same[key] : '')) lose(key)
  for (const key of Object.keys(mapOf(all.kernel))) if (key !== 'args') lose(`kernel ${key}`)
  for (const key of Object.keys(bmc)) if (!ofBmcs.test(key)) lose(`ipmi ${key}`)
  for (const key of Object.keys(tags)) lose(`ipmi tag ${key}`)
  if (!['lanplus', undefined].includes(textOf(bmc.interface))) lose('ipmi interface')
  const variables = Object.entries(mapOf(all.tags)).map(([key, value]) => {
    const variable = key.replace(/\W/g, '_')
    if (variable !== key) lose(`tag ${key}`, `is the variable ${variable}`)
    return [variable, textOf(value)] as const
  })
  const [cards, primary] = cardsOf(mapOf(all['network devices']), textOf(all['primary network']), lose)
  const ofBmc = { netmask: textOf(bmc.netmask), gateway: textOf(bmc.gateway), network: 'bmc' }
  if (address !== undefined)
    cards.push({ name: 'BMC', address, ...ofBmc, words: vlan === undefined ? [] : [`vlan=${textOf(vlan)}`] })
  const port = ['623', undefined].includes(textOf(bmc.port)) ? undefined : Number(bmc.port)
  plan.machine({
    ...{ name, group, cards, variables: Object.fromEntries(variables) },
    fields: {
      ...{ comment: textOf(all.comment), assettag: textOf(all['asset key']) },
      ...{ provision_interface: primary === 'BOOTIF' ? undefined : primary },
      osimage: image && plan.image(image),
      bmcsetupname: username || password ? plan.bmc({ username, password, port }) : undefined,
      setupbmc: isYes(bmc.write) || undefined
    },
    kernel: cleaned(listOf(args, /\s+/))
  })
}

/** Network devices as interfaces: the node boots over BOOTIF. Also the name of the primary one. */
function cardsOf(devices: Map_, wanted: string | undefined, lose: Lose): [Card[], string | undefined] {
  const all = Object.entries(devices).map(([key, value]) => ({
    key,
    one: mapOf(value),
    tags: mapOf(mapOf(value).tags)
  }))
  type Device = (typeof all)[number]
  const chosen =
    all.find(({ key }) => key === wanted) ??
    all.find(({ one }) => isYes(one.primary) || isYes(one.default)) ??
    all.toSorted((a, b) => Number(!a.one.hwaddr) - Number(!b.one.hwaddr) || (a.key < b.key ? -1 : 1))[0]
  const typeOf = ({ one, tags }: Device) => (textOf(one.type) ?? textOf(tags.type) ?? '').toLowerCase()
  const deviceOf = ({ key, one }: Device) => textOf(one.device) ?? key
  const bonds = all.filter(one => typeOf(one) === 'bond')
  const masterOf = (device: Device) =>
    textOf(device.tags.master) ??
    (/slave$/.test(typeOf(device)) && bonds.length === 1 ? bonds[0]?.key : undefined)
  const membersOf = (bond: Device) =>
    all.filter(one => [bond.key, deviceOf(bond)].includes(masterOf(one) ?? ''))
  // A machine boots over a card: of a bond that is the first member, which has no entry of its own then.
  const bond = bonds.find(one => one === chosen || membersOf(one).some(member => member === chosen))
  const primary = bond ?? chosen
  const boot = bond ? membersOf(bond)[0] : primary
  const nameOf = (device: Device) => (device === boot ? 'BOOTIF' : deviceOf(device))
  const cards = all.map((device): Card => {
    const { key, one, tags } = device
    for (const field of Object.keys(one)) if (!ofCards.test(field)) lose(`${key}: ${field}`)
    for (const tag of Object.keys(tags))
      if (!/^(?:vlan_id|parent_device|master|mode|type)$/.test(tag)) lose(`${key}: tag ${tag}`)
    const type = typeOf(device)
    if (!/^(?:|ethernet|infiniband|bond|vlan|slave|bond-slave)$/.test(type)) lose(`${key}: type`)
    if (textOf(one.onboot) !== undefined && !isYes(one.onboot)) lose(`${key}: onboot`)
    const [, parent, id] = /^(.+)\.(\d+)$/.exec(deviceOf(device)) ?? []
    const link = textOf(tags.parent_device) ?? parent ?? ''
    const below = all.find(other => [other.key, deviceOf(other)].includes(link))
    const [cidr, bits] = (textOf(one.ipcidr) ?? '').split('/')
    const mtu = textOf(one.mtu)
    const members = membersOf(device).map(nameOf)
    if (type === 'bond' && members.length === 0)
      lose(`${key}: type`, 'is bond: name its members in its options')
    return {
      ...{ name: nameOf(device), mac: textOf((device === bond && boot?.one.hwaddr) || one.hwaddr) },
      ...{ address: textOf(one.ipaddr) ?? (cidr || undefined), netmask: textOf(one.netmask) ?? bits },
      ...{ gateway: textOf(one.gateway), network: key, dhcp: device === primary },
      words: [
        ...(members.length > 0
          ? [`bond=${members.join(',')}`, `mode=${textOf(tags.mode) ?? 'balance-rr'}`]
          : []),
        ...(type === 'vlan'
          ? [`vlan=${textOf(tags.vlan_id) ?? id}`, `link=${below ? nameOf(below) : link}`]
          : []),
        ...(mtu === undefined ? [] : [`mtu=${mtu}`])
      ]
    }
  })
  return [cards.filter(({ name }) => !bond || name !== 'BOOTIF'), primary && nameOf(primary)]
}
