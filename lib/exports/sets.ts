import { asPauses } from '../base/concurrency.js'
import { foldSliced } from '../node-set/fold.js'
import { asWord, groupsOf } from './names.js'
import { type ExportNode, membershipsOf } from './nodes.js'

/** Yields a group source of ClusterShell in YAML: `@svcd:compute`, `@svcd:rack=r1`. Texts are those of JSON. */
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

/** Yields a line of genders for each node: `node001 all,group=compute,rack=r1,role_login`. */
export function* genders(nodes: readonly ExportNode[]): Generator<string> {
  for (const node of nodes) {
    const attributes = ['all']
    for (const [kind, value] of membershipsOf(node)) {
      // A node may have several roles, and an attribute has one value.
      attributes.push(`${kind}${kind === 'role' ? '_' : '='}${asWord(value)}`)
    }
    yield `\n${node.name} ${[...new Set(attributes)].join(',')}`
  }
}
