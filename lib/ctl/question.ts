import { isNodeSet } from '../node-set/evaluate.js'
import { fold } from '../node-set/fold.js'
import { refused, wrongUsage } from './failure.js'
import type { Session } from './session.js'
import { clean } from './terminal.js'

/**
 * Asks before something is done to a node set that cannot be taken back (rules 14.5); gives the nodes to do it to, as a
 * name or a set. A plain name, and `--yes`, need no question. `what` begins it: `Delete`; `nothing` says that it was not
 * done: `nothing was deleted`.
 * @throws Failure 1 where the answer is no or the set is empty, 2 where there is no terminal to ask on
 */
export async function agreed(session: Session, set: string, what: string, nothing: string): Promise<string> {
  const { terminal, options } = session
  if (!isNodeSet(set) || options.yes) return set
  const nodes = await session.nodes(set)
  if (nodes.length === 0) throw refused(`node set ${set} has no nodes`)
  // What is asked about is what it is done to, whatever the set stands for by then.
  const named = nodes.length === 1 ? (nodes[0] as string) : fold(nodes)
  const many = nodes.length === 1 ? '1 node' : `${nodes.length} nodes`
  if (!terminal.shows.in)
    throw wrongUsage(`${nothing}: there is no terminal to ask on about ${many}, use --yes`)
  if (!(await terminal.confirmed(clean(`${what} ${many}: ${named}? [y/N] `)))) throw refused(nothing)
  return named
}
