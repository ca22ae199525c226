import { firstOf } from '../base/log.js'
import type { Trust } from '../trust/trust.js'

/** Names of nodes in a warning. */
const mostNames = 5

/** Returns a warning if nodes that get `trust` = require have not proved themselves (rules 15.1). */
export function warnUnproven(trust: Trust, names: readonly string[]): string[] {
  const found = names.filter(name => !trust.is(name, 'good'))
  if (found.length === 0) return []
  const [subject, verb] = found.length === 1 ? ['node', 'has'] : [`${found.length} nodes:`, 'have']
  return [
    `${subject} ${firstOf(found, mostNames)} ${verb} trust = require and no good verdict: without one a ` +
      'node gets no install script, and its tokens are void; begin with trust = report'
  ]
}
