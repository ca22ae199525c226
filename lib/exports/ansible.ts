import { asPauses } from '../base/concurrency.js'
import { notFound } from '../base/errors.js'
import { addressesOf, asIdentifier, type ExportNode, groupsOf } from './nodes.js'

/** Yields `ansible-inventory --list`, or what `--host` prints; '' are pauses. Throws 404 for no such host. */
export function* ansible(nodes: readonly ExportNode[], host?: string): Generator<string> {
  if (host !== undefined) {
    const node = nodes.find(({ name }) => name === host)
    if (!node) throw notFound(`ansible: there is no node ${JSON.stringify(host.slice(0, 100))}`, 'no-object')
    return yield JSON.stringify(variablesOf(node))
  }
  yield '{"_meta":{"hostvars":{'
  for (const [i, node] of nodes.entries())
    yield `${i > 0 ? ',' : ''}\n${JSON.stringify(node.name)}:${JSON.stringify(variablesOf(node))}`
  const hosts = new Set(nodes.map(({ name }) => name))
  // Ansible warns of a group with the name of a host.
  const isReserved = (name: string) => ['all', 'ungrouped', '_meta'].includes(name) || hosts.has(name)
  const groups = yield* asPauses(groupsOf(nodes, { clean: asIdentifier, joint: '_', isReserved }))
  const renamed = groups.filter(({ name, original }) => name !== original.replace('=', '_'))
  const originals = Object.fromEntries(renamed.map(({ name, original }) => [name, safe(original)]))
  yield `}},\n"all":{"vars":{"svcd_groups_renamed":${JSON.stringify(originals)}},"hosts":[`
  yield* list(nodes.map(({ name }) => name))
  for (const { name, nodes: members } of groups) {
    yield `]},\n${JSON.stringify(name)}:{"hosts":[`
    yield* list(members)
  }
  yield ']}}'
}

function* list(names: readonly string[]): Generator<string> {
  for (const [i, name] of names.entries()) yield `${i > 0 ? ',' : ''}${JSON.stringify(name)}`
}

/** Ansible takes braces in a text of an inventory for a template, which may run programs on its machine. */
const safe = (text: string) => (/[{}]/.test(text) ? { __ansible_unsafe: text } : text)

function variablesOf(node: ExportNode): object {
  const { doc, settings, variables, hostname, group, state } = { doc: node.node, ...node }
  const { osimage, osimagetag, roles } = settings
  const texts = { group: group?.name, comment: doc.comment, state, osimage, osimagetag, roles }
  const known = Object.entries({ hostname, rack: variables.rack, ...texts }).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string'
  )
  const [address] = addressesOf(node)
  return {
    ...(address === undefined ? {} : { ansible_host: address }),
    ...Object.fromEntries(known.map(([name, text]) => [`svcd_${name}`, safe(text)])),
    svcd_interfaces: Object.fromEntries(
      node.interfaces.map(({ interface: name, network = null, ipaddress = null }) => [
        name,
        { network, ipaddress }
      ])
    ),
    svcd_variables: Object.fromEntries(Object.entries(variables).map(([name, text]) => [name, safe(text)]))
  }
}
