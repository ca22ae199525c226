import { addressesOf, type ExportNode } from './nodes.js'

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
