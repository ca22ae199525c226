import { networkInterfaces } from 'node:os'
import { badRequest } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import {
  type Address,
  contains,
  formatAddress,
  type Prefix,
  parseAddress,
  parsePrefix,
  toAddress
} from './address.js'
import { isBmc } from './cluster-index.js'
import { type Actor, type Model, saveObject } from './model.js'
import { controllerAddresses } from './networks.js'
import type { ChangeContext, ObjectPatch } from './object-type.js'
import { checkChangesSliced } from './rules.js'
import { docsOf } from './stored.js'
import type { InterfaceDoc } from './types/interface.js'
import type { NetworkDoc } from './types/network.js'
import { warningsOf } from './warnings.js'

/** Failed addresses that a refusal names. */
const MOST_NAMED = 5

/** Fields of a network that may hold any machine's address, and those that hold only its own addresses. */
const anyAddressFields = ['ns_hostname', 'ns_ip', 'ntp_server', 'dns_records'] as const
const ownAddressFields = ['gateway', 'dhcp_range_begin', 'dhcp_range_end', 'routes'] as const

/** A complete address: not part of a name or of a prefix. */
const ADDRESS = /(?<![\w./-])\d+(?:\.\d+){3}(?![\w./-])/g

type Addressed = Partial<InterfaceDoc> & { readonly interfaces?: readonly InterfaceDoc[] }

/**
 * Moves a network, and all addresses in it, to another prefix in one transaction (rules 3.19); host parts are
 * kept. `given` has the new `network` and fields that replace the moved ones. Returns the number of moved
 * addresses; `warnings` receives what is left to do by hand, in a dry run too. Throws 400 naming the first
 * addresses that do not fit or are taken, and 404.
 */
export function renumber(
  model: Model,
  name: string,
  given: ObjectPatch,
  actor: Actor,
  warnings: string[]
): Promise<number> {
  return model.changeInSteps(actor, 'change', function* (changing) {
    const { tx, cluster } = changing
    const before = model.get('network', name, tx)
    const to = given.values.get('network')
    const [old, now] = [parsePrefix(before.network), typeof to === 'string' ? parsePrefix(to) : undefined]
    if (!old || !now)
      throw badRequest(
        `network ${name}: field "network" is missing: the new one, such as 10.150.0.0/16`,
        'missing-field'
      )
    if (given.newName !== undefined)
      throw badRequest(
        `network ${name}: field "newnetname": a network is renamed by another request`,
        'invalid-field'
      )
    const loose = warningsOf(tx, 'network', name, cluster)
    const moved = (address: Address): Address => now.first + (address - old.first)
    const devices = yield* moveDevices(changing, name, moved)
    const own = moveAddresses(before, [...anyAddressFields, ...ownAddressFields], one =>
      contains(old, one) ? moved(one) : one
    )
    yield* saveObject(changing, 'network', name, own, given)
    // A name or time server of another network may be a machine of this one.
    for (const other of docsOf(tx, 'network').filter(one => one.name !== name)) {
      const next = moveAddresses(other, anyAddressFields, one => devices.to.get(one) ?? one)
      yield tx.put('network', other.name, next)
    }
    yield* check(changing, name, `${name} cannot become ${to}`)
    const urls = cluster.urlAddresses.map(text => [toAddress(text), '[http] url'] as const)
    const controllers = [...controllerAddresses(cluster)].map(
      ([at, one]) => [at, `controller ${one}`] as const
    )
    for (const [address, who] of new Map([...urls, ...controllers]))
      if (contains(old, address) && !contains(now, address))
        warnings.push(
          `${who} has ${formatAddress(address)}: ${cardOf(now, moved(address), String(to))}` +
            'change [controller] address and [http] url, and restart svcd'
        )
    for (const text of cluster.ntp_server.match(ADDRESS) ?? []) {
      const address = parseAddress(text)
      if (address !== undefined && contains(old, address) && !contains(now, address))
        warnings.push(
          `cluster: field "ntp_server" has ${text}: if that machine moves too, ` +
            `give it ${formatAddress(moved(address))}`
        )
    }
    if (devices.bmcs > 0)
      warnings.push(
        `${devices.bmcs} of the addresses are of BMCs, which have the old ones until they are set ` +
          '(setupbmc at an installation, or by hand)'
      )
    warnings.push(...warningsOf(tx, 'network', name, cluster).filter(one => !loose.includes(one)))
    return devices.to.size
  })
}

/** The step of a controller's card, where no card of this machine has an address in the new prefix yet. */
function cardOf(prefix: Prefix, such: Address, to: string): string {
  const own = Object.values(networkInterfaces()).flatMap(
    all => all?.map(one => parseAddress(one.address)) ?? []
  )
  return own.some(one => one !== undefined && contains(prefix, one))
    ? ''
    : `give its card an address in ${to} too, such as ${formatAddress(such)}, then `
}

/** Moves the addresses of nodes and devices; returns the new ones, and how many of BMCs. A step each. */
function* moveDevices({ tx }: ChangeContext, network: string, moved: (address: Address) => Address) {
  const to = new Map<Address, Address>()
  let bmcs = 0
  const entryOf = <E extends Partial<InterfaceDoc>>(entry: E): E => {
    const address = entry.network === network ? parseAddress(entry.ipaddress ?? '') : undefined
    if (address === undefined || moved(address) === address) return entry
    to.set(address, moved(address))
    if (isBmc(entry)) bmcs++
    return { ...entry, ipaddress: formatAddress(moved(address)) }
  }
  for (const { type, name } of tx.index.referrers({ type: 'network', name: network })) {
    yield
    const doc = tx.get(type, name) as Addressed | undefined
    if (!doc || type === 'network') continue
    const { interfaces } = doc
    tx.put(type, name, (interfaces ? { ...doc, interfaces: interfaces.map(entryOf) } : entryOf(doc)) as never)
  }
  return { to, bmcs }
}

function moveAddresses(
  network: NetworkDoc,
  where: readonly (typeof anyAddressFields | typeof ownAddressFields)[number][],
  moved: (address: Address) => Address
): NetworkDoc {
  const text = (found: string) => {
    const address = parseAddress(found)
    return address === undefined ? found : formatAddress(moved(address))
  }
  const fields = where.flatMap(field => {
    const value = network[field]
    return value === undefined ? [] : [[field, JSON.parse(JSON.stringify(value).replace(ADDRESS, text))]]
  })
  return { ...network, ...Object.fromEntries(fields) }
}

/** Refuses broken rules, naming the first ones. A wrong address is reported for its owner only. */
function* check({ tx, cluster }: ChangeContext, network: string, title: string): Generator<void> {
  const others: string[] = []
  let ofNetwork = ''
  yield* checkChangesSliced(tx, cluster, ({ type, name }, { message }) => {
    if (type === 'network' && name === network) ofNetwork = message
    else others.push(message)
  })
  const isOfOwner = ofNetwork.startsWith(`network ${network}: field "network": `) && others.length > 0
  const all = [isOfOwner ? '' : ofNetwork, firstOf(others, MOST_NAMED, '; ')].filter(Boolean)
  if (all.length === 0) return
  throw badRequest(`network ${title}, nothing was changed: ${all.join('; ')}`, 'renumber-refused')
}
