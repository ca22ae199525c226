import { asPauses } from '../base/concurrency.js'
import { foldSliced } from '../node-set/hostlist.js'
import { asWord, distinct, type ExportNode, groupsOf, membershipsOf } from './nodes.js'

/** Yields ClusterShell's group source in YAML: `@svcd:compute`, `@svcd:rack=r1`. Texts are JSON's. */
export function* clustershell(nodes: readonly ExportNode[]): Generator<string> {
  yield '\nsvcd:'
  const all = yield* asPauses(foldSliced(nodes.map(({ name }) => name)))
  yield `\n  "all": ${JSON.stringify(all)}`
  const isReserved = (name: string) => name === 'all'
  for (const group of yield* asPauses(groupsOf(nodes, { clean: asWord, joint: '=', isReserved }))) {
    const set = yield* asPauses(foldSliced(group.nodes))
    yield `\n  ${JSON.stringify(group.name)}: ${JSON.stringify(set)}`
  }
}

/** A node may have several roles, and an attribute has one value. */
const attributeOf = (kind: string, value: string) => `${kind}${kind === 'role' ? '_' : '='}${value}`

/** Yields a line of genders for each node: `node001 all,group=compute,rack=r1,role_login`. */
export function* genders(nodes: readonly ExportNode[]): Generator<string> {
  const proposed = new Map<string, string>()
  for (const node of nodes) {
    yield ''
    for (const [kind, value] of membershipsOf(node))
      proposed.set(attributeOf(kind, value), attributeOf(kind, asWord(value)))
  }
  const named = distinct(proposed)
  for (const node of nodes) {
    const own = [...membershipsOf(node)].map(([kind, value]) => named.get(attributeOf(kind, value)))
    yield `\n${node.name} ${['all', ...own].join(',')}`
  }
}
