import { parseAddress } from '../model/address.js'
import { type Card, type Plan, prefixOf } from './plan.js'

/** Attributes of an object by name. */
type Stanza = ReadonlyMap<string, string>
type Lose = (field: string, why?: string) => void

/** Attributes of nodes that are read, and those that repeat what the image says. */
const ofNodes =
  /^(?:objtype|groups|ip|mac|bmc|bmcusername|bmcpassword|provmethod|addkcmdline|serial(?:|port|speed|flow)|usercomment|switch|switchport|domain|rack|room|unit|slot|os|arch|profile|installnic|primarynic|nodetype|nic(?:ips|networks|types|devices|extraparams)\..+)$/
const ofNetworks = /^(?:objtype|net|mask|gateway|nameservers|ntpservers|usercomment|dynamicrange)$/
const ofImages = /^(?:objtype|osvers|rootimgdir|kernelver|usercomment)$/
const ofGroups = /^(?:objtype|members|grouptype)$/
/** Whether a value is a rule of a table, such as |node(\d+)|10.0.0.($1)|, which only xCAT can work out. */
const isRule = (value: string) => /^\|.*\|/.test(value)
const words = (text = '', separator = /[,\s]+/) => text.split(separator).filter(Boolean)

/** Reads what `lsdef -z` prints into a plan. Throws Error with the line, and never with a text of it. */
export function readXcat(text: string, plan: Plan): void {
  const stanzas = stanzasOf(text)
  const each = (type: string, known: RegExp, add: (name: string, all: Stanza, lose: Lose) => void) => {
    for (const [name, all] of stanzas) {
      if (all.get('objtype') !== type) continue
      const lose = (field: string, why?: string) => plan.lose(type, name, `attribute "${field}"`, why)
      for (const [field, value] of all)
        if (isRule(value)) lose(field, 'is a rule of a table, and counts as lsdef shows it at each node')
        else if (!known.test(field)) lose(field)
      add(name, new Map([...all].filter(([, value]) => !isRule(value))), lose)
    }
  }
  each('network', ofNetworks, (...one) => readNetwork(plan, ...one))
  each('osimage', ofImages, (name, all) => readImage(plan, name, all))
  each('group', ofGroups, () => {})
  each('node', ofNodes, (...one) => readNode(plan, ...one))
  for (const [name, all] of stanzas) {
    const type = all.get('objtype') ?? 'unknown'
    if (!['node', 'network', 'osimage', 'group'].includes(type)) plan.lose(type, name)
  }
  if (!stanzas.some(([, all]) => all.get('objtype') === 'node'))
    throw new Error('has no nodes: make the file by `lsdef -z -t node,network,osimage`')
}

function stanzasOf(text: string): readonly (readonly [name: string, all: Stanza])[] {
  const found: [string, Map<string, string>][] = []
  const lines = text.replace(/^\ufeff/, '').split(/\r?\n/)
  for (const [i, line] of lines.entries()) {
    const fail = (why: string) => new Error(`line ${i + 1}: ${why}`)
    if (/^\s*(?:#.*)?$/.test(line)) continue
    if (line.startsWith('Object name:')) throw fail('is no stanza: give lsdef the option -z')
    const [, attribute, value = ''] = /^\s*([^\s=]+)\s*=\s*(.*?)\s*$/.exec(line) ?? []
    const [, name] = /^\s*(\S+):\s*$/.exec(line) ?? []
    if (attribute !== undefined && found.length > 0)
      found.at(-1)?.[1].set(attribute, value.replace(/^(["'])(.*)\1$/, '$2'))
    else if (attribute === undefined && name !== undefined) found.push([name, new Map()])
    else throw fail('must be NAME: or, indented below it, ATTRIBUTE=VALUE')
  }
  // A stanza default-node holds what nodes have that do not say otherwise.
  const isDefault = (name: string) => name.startsWith('default-')
  const defaults = new Map(found.filter(([name]) => isDefault(name)))
  const seen = new Set<string>()
  for (const [name, all] of found)
    if (seen.size === seen.add(`${all.get('objtype')} ${name}`).size)
      throw new Error(`has the ${all.get('objtype')} ${name} twice: take one of them out`)
  return found
    .filter(([name]) => !isDefault(name))
    .map(([name, own]) => {
      const below = defaults.get(`default-${own.get('objtype')}`) ?? []
      return [name, new Map([...below, ...own].filter(([, value]) => value !== ''))]
    })
}

function readNetwork(plan: Plan, name: string, all: Stanza, lose: Lose): void {
  const prefix = prefixOf(all.get('net') ?? '', (all.get('mask') ?? '').replace(/^\//, ''))
  if (prefix === undefined) {
    lose('net', 'and "mask" are no network of IPv4: it is left out')
    return
  }
  // <xcatmaster> stands for the address of a server.
  for (const [field, value] of all) if (/^<.*>$/.test(value)) lose(field)
  const [gateway, ns_ip, ntp_server] = ['gateway', 'nameservers', 'ntpservers'].map(field =>
    all.get(field)?.replace(/^<.*>$/, '')
  )
  const [range = '', ...more] = words(all.get('dynamicrange'), /[,;]/)
  if (more.length > 0) lose('dynamicrange', 'has several ranges: the first one is taken')
  const [dhcp_range_begin, dhcp_range_end] = range.split('-')
  const dhcp = dhcp_range_end !== undefined
  const rest = {
    comment: all.get('usercomment'),
    ...(dhcp ? { dhcp, dhcp_range_begin, dhcp_range_end } : {})
  }
  const known = plan.network(prefix, name, { gateway, ns_ip, ntp_server, ...rest })
  if (known.name !== plan.named('network', name))
    lose('net', `is that of network ${known.name}: it is left out`)
}

function readImage(plan: Plan, name: string, all: Stanza): void {
  const [, distribution = '', osrelease = ''] = /^([a-z]+)(.*)$/i.exec(all.get('osvers') ?? '') ?? []
  const path = all.get('rootimgdir')
  plan.image(name, {
    ...{ distribution: distribution === 'rhels' ? 'redhat' : distribution.toLowerCase(), osrelease },
    ...{ kernelversion: all.get('kernelver'), comment: all.get('usercomment') },
    path: path === undefined ? undefined : `${path.replace(/\/$/, '')}/rootimg`
  })
}

function readNode(plan: Plan, name: string, all: Stanza, lose: Lose): void {
  const type = all.get('nodetype') ?? ''
  if (/^(?:switch|pdu)$/.test(type)) {
    lose('nodetype', `is ${type}: add it by svcctl switch add, or otherdev add`)
    return
  }
  const groups = words(all.get('groups'))
  const [username, password] = [all.get('bmcusername'), all.get('bmcpassword')]
  const image = all.get('provmethod') ?? ''
  const isImage = !/^(?:|install|netboot|statelite|boot)$/.test(image)
  if (image !== '' && !isImage) lose('provmethod', 'names no image: set "osimage" of the node or its group')
  const [switchport, port] = [all.get('switchport') ?? '', all.get('serialport')]
  const speed = `${all.get('serialspeed') ?? 115200}${all.get('serialflow') === 'hard' ? 'n8r' : ''}`
  plan.machine({
    ...{ name, group: groups.find(one => one !== 'all') ?? groups[0], cards: cardsOf(all, lose) },
    fields: {
      ...{ comment: all.get('usercomment'), serial: all.get('serial'), switch: all.get('switch') },
      ...{ switchport: /^\d+$/.test(switchport) ? Number(switchport) : switchport },
      ...(all.has('domain') ? { domain: all.get('domain') } : {}),
      osimage: isImage ? plan.image(image) : undefined,
      bmcsetupname: username || password ? plan.bmc({ username, password }) : undefined
    },
    variables: {
      ...Object.fromEntries(['rack', 'room', 'unit', 'slot'].map(place => [place, all.get(place)])),
      groups: groups.length > 1 ? groups.join(',') : undefined
    },
    kernel: [
      ...(port === undefined ? [] : ['console=tty0', `console=ttyS${port},${speed}`]),
      ...words(all.get('addkcmdline'), /\s+/).map(word => word.replace(/^R::/, ''))
    ]
  })
}

/** The interfaces of a node: that of "ip" and "mac" is BOOTIF, further addresses of one are `on` it. */
function cardsOf(all: Stanza, lose: Lose): Card[] {
  const [first = '', ...macs] = words(all.get('mac'), /\|/)
  if (macs.length > 0) lose('mac', 'has several MACs: the first one is taken')
  const mac = first.replace(/!.*/, '')
  const names = new Set([...all.keys()].flatMap(field => /^nic\w+\.(.+)$/.exec(field)?.[1] ?? []))
  const boot = [all.get('installnic'), all.get('primarynic')].find(nic => nic !== undefined && names.has(nic))
  const nameOf = (nic: string) => (nic === boot ? 'BOOTIF' : nic)
  const cards = [...names].flatMap(nic => {
    const list = (field: string) => words(all.get(`nic${field}.${nic}`), /\|/)
    const [type = '', networks] = [list('types')[0]?.toLowerCase(), list('networks')]
    const [, parent = '', id = ''] = /^(.+)\.(\d+)$/.exec(nic) ?? []
    const devices = list('devices').map(nameOf)
    const mtu = /\bMTU=(\d+)/i.exec(all.get(`nicextraparams.${nic}`) ?? '')?.[1]
    if (all.has(`nicextraparams.${nic}`) && mtu === undefined) lose(`nicextraparams.${nic}`)
    const options = [
      ...(/^(?:bond|bridge)$/.test(type) ? [`${type}=${devices.join(',')}`] : []),
      ...(type === 'vlan' ? [`vlan=${id}`, `link=${devices[0] ?? nameOf(parent)}`] : []),
      ...(mtu === undefined ? [] : [`mtu=${mtu}`])
    ]
    const name = type === 'bmc' ? 'BMC' : nameOf(nic)
    const [address, ...more] = list('ips')
    const entry = { name, address, network: networks[0] ?? nic, dhcp: networks.length > 0, words: options }
    const further = more.map((address, i) => ({
      ...{ name: `${nic}-${i + 2}`, address, network: networks[i + 1] ?? nic, words: [`on=${name}`] }
    }))
    return [name === 'BOOTIF' ? { ...entry, mac } : entry, ...further]
  })
  const has = (name: string) => cards.some(card => card.name === name)
  const [ip, bmc = ''] = [all.get('ip'), all.get('bmc')]
  const hasBmc = parseAddress(bmc) !== undefined && !has('BMC')
  if (bmc !== '' && parseAddress(bmc) === undefined) lose('bmc', 'is no address: set that of interface BMC')
  return [
    ...(has('BOOTIF') ? [] : [{ name: 'BOOTIF', mac, address: ip, network: 'cluster', words: [] }]),
    ...cards,
    ...(!hasBmc ? [] : [{ name: 'BMC', address: bmc, network: 'bmc', words: [] }])
  ]
}
