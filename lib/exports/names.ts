import { createHash } from 'node:crypto'
import { type ExportNode, membershipsOf } from './nodes.js'

/** Returns a text as a word of one line, without a character that means something in any of the formats. */
export const asWord = (text: string): string => text.replace(/[^A-Za-z0-9_.-]/g, '_')

/** Returns a text as an identifier of Python, which the name of an Ansible group has to be. */
export const asIdentifier = (text: string): string =>
  text.replace(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')

/** How a program writes the names of groups. */
export interface NameRule {
  /** Returns a name that the program takes. */
  readonly clean: (text: string) => string
  /** The sign between a kind and a name, as in `rack_r1`; a group has its own name. */
  readonly joint: string
  /** Whether the program uses a name for something else. */
  readonly isReserved: (name: string) => boolean
}

/** A group of nodes under a name that a program takes. */
export interface NamedGroup {
  readonly name: string
  /** The name as svcd writes it: `compute`, `rack=r 1`. */
  readonly original: string
  readonly nodes: readonly string[]
}

const digest = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 8)

/**
 * Gathers the groups, racks, images, tags, roles and states of nodes, in steps. A name that the program does
 * not take is changed. No two groups become one: where two names are equal then, those that were changed get
 * a digest of the original behind them.
 */
export function* groupsOf(nodes: readonly ExportNode[], rule: NameRule): Generator<void, NamedGroup[]> {
  const members = new Map<string, string[]>()
  const proposed = new Map<string, string>()
  const counts = new Map<string, number>()
  for (const node of nodes) {
    yield
    for (const [kind, value] of membershipsOf(node)) {
      const original = kind === 'group' ? value : `${kind}=${value}`
      const there = members.get(original)
      if (there) there.push(node.name)
      else {
        const name = kind === 'group' ? rule.clean(value) : `${kind}${rule.joint}${rule.clean(value)}`
        members.set(original, [node.name])
        proposed.set(original, name)
        counts.set(name, (counts.get(name) ?? 0) + 1)
      }
    }
  }
  return [...members].map(([original, names]) => {
    const name = proposed.get(original) ?? ''
    const isAlone = name === original || counts.get(name) === 1
    const isFree = isAlone && !rule.isReserved(name)
    return { original, name: isFree ? name : `${name}_${digest(original)}`, nodes: names }
  })
}
