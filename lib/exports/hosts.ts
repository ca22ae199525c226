import { asPauses } from '../base/concurrency.js'
import type { Captured } from '../services/capture.js'
import { dnsData } from '../services/dns/data.js'
import { addressesOf, type ExportNode, inventoryOf } from './nodes.js'

/**
 * Yields /etc/hosts: the addresses and names that svcd gives to DNS, each machine also by its bare name.
 * `captured` has all nodes, since a name may be that of another one; `isWhole`: with other devices too.
 */
export function* hosts(
  nodes: readonly ExportNode[],
  captured: Captured,
  isWhole: boolean
): Generator<string> {
  const known = yield* asPauses(dnsData(captured))
  const names = new Map(known.hosts.map(entry => [entry.address, entry.names]))
  const lines = new Set<string>()
  for (const node of nodes) {
    const [first] = addressesOf(node)
    yield ''
    for (const { ipaddress } of node.interfaces) {
      if (ipaddress === undefined || lines.has(ipaddress)) continue
      const own = ipaddress === first ? [node.hostname, node.name] : []
      const all = [...new Set([...own.slice(0, 1), ...(names.get(ipaddress) ?? []), ...own])]
      lines.add(ipaddress)
      if (all.length > 0) yield `\n${ipaddress} ${all.join(' ')}`
    }
  }
  if (!isWhole) return
  const bare = new Set(nodes.map(({ name }) => name))
  for (const [address, [first = '', ...others]] of names) {
    if (lines.has(address)) continue
    const [label = ''] = first.split('.', 1)
    yield `\n${[address, first, ...others, ...(bare.has(label) ? [] : [label])].join(' ')}`
    bare.add(label)
  }
}

/** The kinds of keys that a node reports, in the form of OpenSSH. */
const hostKey = /^(?:ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]{40,}={0,2}$/

/** Yields a known_hosts of OpenSSH: the host keys that nodes reported, under their names and addresses. */
export function* knownHosts(nodes: readonly ExportNode[]): Generator<string> {
  for (const node of nodes) {
    yield ''
    const names = [...new Set([node.name, node.hostname, ...addressesOf(node)])].join(',')
    for (const key of inventoryOf(node).host_keys ?? []) if (hostKey.test(key)) yield `\n${names} ${key}`
  }
}

/** Yields the targets of an http_sd of Prometheus: a list entry for each node that has an address. */
export function* prometheus(nodes: readonly ExportNode[], port: number): Generator<string> {
  let lead = '['
  for (const node of nodes) {
    yield ''
    const [address] = addressesOf(node)
    if (address === undefined) continue
    const { name, group, variables, settings } = node
    const labels = {
      node: name,
      group: group?.name,
      rack: variables.rack,
      osimage: settings.osimage ?? undefined
    }
    yield `${lead}\n${JSON.stringify({ targets: [`${address}:${port}`], labels })}`
    lead = ','
  }
  yield lead === '[' ? '[]' : ']'
}
