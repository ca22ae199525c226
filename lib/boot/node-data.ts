import type { EffectiveNode } from '../model/effective.js'

/** Who a node is, for the templates of its installation and of its files; '' where a value is not set. `url`: svcd's. */
export const nodeData = ({ node, hostname, domain }: EffectiveNode, url: string) => ({
  node: node.name,
  hostname,
  domain,
  group: node.group ?? '',
  comment: node.comment ?? '',
  vendor: node.vendor ?? '',
  assettag: node.assettag ?? '',
  url
})
