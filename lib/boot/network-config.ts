import { type InterfaceOptions, interfaceOptions, membersOf } from '../model/types/interface.js'
import type { InstallInterface } from './install-data.js'

type Kind = 'ethernets' | 'bonds' | 'bridges' | 'vlans'

interface Entry {
  readonly given: InstallInterface
  readonly name: string
  /** undefined: no interface, but a further address of the one that it names. */
  readonly kind: Kind | undefined
  readonly options: InterfaceOptions
  readonly members: readonly string[]
  readonly link: string
}

/** An entry, and how it gets its address. */
type Addressed = Entry & { readonly method: 'none' | 'static' | 'dhcp' }

/** Returns the interfaces of a node as netplan's version 2, which cloud-init reads too (rules 4.40). */
export function networkConfig(interfaces: readonly InstallInterface[]): object {
  const known = interfaces.filter(({ bmc }) => !bmc).map(entryOf)
  const lower = known.flatMap(({ kind, members, link }) => (kind === 'vlans' ? [link] : members))
  const others = [...new Set(lower)].filter(name => !known.some(entry => entry.name === name))
  const all = [...known, ...others.map(bareEntry)]
  const entries = all.map(entry => ({ ...entry, method: methodOf(entry, all) }))
  const route = defaultRoute(entries)
  const config: { version: 2 } & Partial<Record<Kind, Record<string, object>>> = { version: 2 }
  for (const entry of entries) {
    if (!entry.kind) continue
    config[entry.kind] ??= {}
    const devices = config[entry.kind] as Record<string, object>
    devices[entry.name] = { ...deviceOf(entry), ...addressing(entry, entries, route) }
  }
  return config
}

function entryOf(given: InstallInterface): Entry {
  const options = interfaceOptions(given.options)
  const { interface: name } = given
  const link = options.link ?? name.replace(/\.[^.]*$/, '')
  const kind = kindOf(options, link !== name)
  const lower = kind === 'bonds' ? options.bond : kind === 'bridges' ? options.bridge : undefined
  return { given, name, kind, options, members: membersOf(lower), link }
}

function kindOf(options: Entry['options'], hasLink: boolean): Kind | undefined {
  if (options.on) return undefined
  if (options.vlan && hasLink) return 'vlans'
  return options.bond ? 'bonds' : options.bridge ? 'bridges' : 'ethernets'
}

/** An interface below a bond, bridge or VLAN that has no entry of its own. */
const bareEntry = (name: string): Entry => {
  const none = { network: '', ipaddress: '', netmask: '', gateway: '', nameserver: '', ns_hostname: '' }
  const empty = { ...none, domain: '', ntp_server: '', macaddress: '', options: '', routes: [], prefixlen: 0 }
  return entryOf({ ...empty, interface: name, provision: false, bmc: false })
}

function deviceOf({ given, name, kind, options, members, link }: Entry): object {
  const { macaddress } = given
  if (kind === 'vlans') return { id: Number(options.vlan), link }
  if (kind === 'bonds' || kind === 'bridges') {
    const mode = options.mode ?? 'active-backup'
    const parameters = kind === 'bonds' ? { mode, 'mii-monitor-interval': 100 } : { stp: false }
    return { interfaces: members, ...(macaddress ? { macaddress } : {}), parameters }
  }
  // The GUID of an InfiniBand port is no MAC: it is found by its name.
  if (/^..(?::..){5}$/.test(macaddress)) return { match: { macaddress } }
  return name === 'BOOTIF' ? { match: { name: 'e*' } } : {}
}

function methodOf({ given, name, options }: Entry, entries: readonly Entry[]): Addressed['method'] {
  const isMember = entries.some(({ members }) => members.includes(name))
  if (isMember || (given.network === '' && !given.provision)) return 'none'
  if (options.on) return given.ipaddress ? 'static' : 'none'
  return given.ipaddress !== '' && options.dhcp !== 'yes' ? 'static' : 'dhcp'
}

/** Returns the interface with the default route: one that asks for it, the provision interface, another. */
function defaultRoute(entries: readonly Addressed[]): Addressed | undefined {
  const rank = ({ given, options, method }: Addressed): number => {
    if (options.on || options.defaultroute === 'no' || method === 'none') return 0
    if (method === 'static' && given.gateway === '') return 0
    if (options.defaultroute === 'yes') return 3
    if (given.provision) return 2
    return method === 'static' ? 1 : 0
  }
  const most = Math.max(0, ...entries.map(rank))
  return most === 0 ? undefined : entries.find(entry => rank(entry) === most)
}

function addressing(entry: Addressed, entries: readonly Addressed[], route: Addressed | undefined): object {
  const { given, name, options, method } = entry
  const mtu = options.mtu ? { mtu: Number(options.mtu) } : {}
  if (method === 'none') return { ...mtu, dhcp4: false, optional: true }
  const metric = options.metric ? { metric: Number(options.metric) } : {}
  const asks = options.defaultroute === 'yes' && options.metric !== undefined
  const isDefault = options.defaultroute !== 'no' && (!route || route === entry || asks)
  const further = entries.filter(other => other.options.on === name && other.method === 'static')
  const fixed = [...(method === 'static' ? [entry] : []), ...further]
  const addresses = fixed.map(({ given: { ipaddress, prefixlen } }) => `${ipaddress}/${prefixlen}`)
  const gateway = method === 'static' && isDefault ? given.gateway : ''
  const routes = [
    ...(gateway ? [{ to: '0.0.0.0/0', via: gateway, ...metric }] : []),
    ...[entry, ...further].flatMap(({ given: { routes } }) =>
      routes.map(text => {
        const [to = '', via = ''] = text.split(' via ')
        return { to, via, ...metric }
      })
    )
  ]
  const servers = given.nameserver.split(' ').filter(Boolean)
  const nameservers = {
    ...(servers.length > 0 ? { addresses: servers } : {}),
    ...(given.domain ? { search: [given.domain] } : {})
  }
  return {
    ...mtu,
    ...(method === 'dhcp' ? leased(isDefault, options.metric) : { dhcp4: false }),
    ...(addresses.length > 0 ? { addresses } : {}),
    ...(routes.length > 0 ? { routes } : {}),
    ...(method === 'static' && Object.keys(nameservers).length > 0 ? { nameservers } : {}),
    // A card without a link must not delay the boot, unless the node is provisioned over it.
    ...(given.provision ? {} : { optional: true })
  }
}

/** The lease follows the MAC, not an identifier that each new system invents. */
function leased(isDefault: boolean, metric: string | undefined): object {
  const overrides = {
    ...(metric === undefined ? {} : { 'route-metric': Number(metric) }),
    ...(isDefault ? {} : { 'use-routes': false })
  }
  return {
    dhcp4: true,
    'dhcp-identifier': 'mac',
    ...(Object.keys(overrides).length > 0 ? { 'dhcp4-overrides': overrides } : {})
  }
}
