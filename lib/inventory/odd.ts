import { Background } from '../base/background.js'
import { runSliced } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { clip } from '../base/log.js'
import type { NodeDoc } from '../model/types/node.js'
import type { Change } from '../store/types.js'
import { type FactName, type Facts, factNames, isSameMemory, memorySize } from './facts.js'

/** How a node is not like the others of its group. */
export interface Difference {
  readonly fact: FactName
  readonly group: string
  /** The values of the node and of most nodes; 'none' for nothing. */
  readonly value: string
  readonly usual: string
  /** How many of how many nodes have the usual. */
  readonly count: number
  readonly of: number
}

/** Nodes make the texts. */
const longestFact = 150
const short = (text: string) => clip(text, longestFact)

/** Says a difference in one line. */
export const differenceText = ({ fact, value, usual, count, of, group }: Difference) =>
  `${fact}: ${short(value)}; ${count} of ${of} nodes of group ${group} have ${short(usual)}`

/** Nodes of a group with a known fact that a majority needs. */
const leastNodes = 3
/** Pause between two comparisons of a group, while its nodes report. */
const everyMs = 2_000

interface Sources {
  readonly nodesOf: (group: string) => Iterable<string>
  readonly groups: () => Iterable<string>
  readonly groupOf: (node: string) => string | undefined
  readonly factsOf: (node: string) => Facts | undefined
}

/** Compares each node with the majority of its group (rules 6.17), in the background and in slices. */
export class OddNodes {
  /** By group, then by node. Only nodes with differences are there. */
  readonly #found = new Map<string, ReadonlyMap<string, readonly Difference[]>>()
  readonly #changed: Set<string>
  /** Called with each node whose differences are other ones; must not throw. */
  onChange: (node: string) => void = () => undefined
  readonly #comparing = new Background({ work: () => this.#compare() })

  constructor(private readonly sources: Sources) {
    this.#changed = new Set(sources.groups())
    this.#comparing.wake(everyMs)
  }

  /** Notes that the facts of a node may be other ones. */
  changed(node: string): void {
    this.#mark(this.sources.groupOf(node))
  }

  /** Applies committed changes: nodes that are new, gone, or in another group. */
  follow(changes: readonly Change[]): void {
    for (const { type, before, after } of changes) {
      if (type !== 'node') continue
      const [was, is] = [(before as NodeDoc | undefined)?.group, (after as NodeDoc | undefined)?.group]
      if (was === is && before && after) continue
      this.#mark(was)
      this.#mark(is)
    }
  }

  /** Resolves when all that is known was compared. */
  async current(): Promise<void> {
    if (this.#changed.size > 0) await this.#comparing.run()
  }

  /** Returns the differences of a node as last compared. */
  of(node: string): readonly Difference[] {
    return this.#found.get(this.sources.groupOf(node) ?? '')?.get(node) ?? []
  }

  /** Yields the number of odd nodes of each group whose nodes were compared. */
  *counts(): Generator<readonly [group: string, count: number]> {
    for (const [group, found] of this.#found) yield [group, found.size]
  }

  close(): Promise<void> {
    return this.#comparing.close()
  }

  #mark(group: string | undefined): void {
    if (group === undefined) return
    this.#changed.add(group)
    this.#comparing.wake(everyMs)
  }

  async #compare(): Promise<void> {
    while (this.#changed.size > 0) {
      const [group = ''] = this.#changed
      this.#changed.delete(group)
      const found = await runSliced(compared(this.sources, group))
      const before = this.#found.get(group)
      if (found) this.#found.set(group, found)
      else this.#found.delete(group)
      const isSame = (node: string) => JSON.stringify(found?.get(node)) === JSON.stringify(before?.get(node))
      for (const node of new Set([...(before?.keys() ?? []), ...(found?.keys() ?? [])]))
        if (!isSame(node)) this.onChange(node)
    }
  }
}

/** Finds the nodes of a group that differ, a step per node; undefined if too few have an inventory. */
function* compared(
  { nodesOf, factsOf }: Sources,
  group: string
): Generator<void, Map<string, Difference[]> | undefined> {
  const known: (readonly [node: string, facts: Facts])[] = []
  for (const node of [...nodesOf(group)]) {
    yield
    const facts = factsOf(node)
    if (facts) known.push([node, facts])
  }
  if (known.length < leastNodes) return undefined
  const found = new Map<string, Difference[]>()
  for (const fact of factNames) {
    const values: (readonly [node: string, value: string])[] = []
    for (const [node, { [fact]: value }] of known) if (value !== undefined) values.push([node, value])
    yield
    const usual = usualOf(fact, values)
    if (usual === undefined) continue
    const others = values.filter(([, value]) => !isLike(fact, value, usual))
    const count = values.length - others.length
    const about = { fact, group, usual: shown(fact, usual), count, of: values.length }
    for (const [node, value] of others) addTo(found, node, { ...about, value: shown(fact, value) })
    yield
  }
  return found
}

const isLike = (fact: FactName, a: string, b: string) =>
  fact === 'memory' ? isSameMemory(Number(a), Number(b)) : a === b

const shown = (fact: FactName, value: string) =>
  value === '' ? 'none' : fact === 'memory' ? memorySize(Number(value)) : value

/** Returns the value that more than half of the nodes have; of sizes of memory one that they are close to. */
function usualOf(
  fact: FactName,
  values: readonly (readonly [node: string, value: string])[]
): string | undefined {
  if (values.length < leastNodes) return undefined
  // If more than half are close to one size, the one in the middle is among them.
  const sizes = fact === 'memory' ? values.map(([, value]) => Number(value)).sort((a, b) => a - b) : []
  const counts = new Map<string, number>()
  for (const [, value] of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  const [[most = ''] = []] = [...counts].sort(([, a], [, b]) => b - a)
  const usual = String(sizes[sizes.length >> 1] ?? most)
  const count = values.filter(([, value]) => isLike(fact, value, usual)).length
  return count * 2 > values.length ? usual : undefined
}
