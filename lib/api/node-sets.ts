import { type Caller, groupsOf, outsideLimit } from '../auth/access.js'
import { asPauses, filterInSteps } from '../base/concurrency.js'
import { didYouMean } from '../base/did-you-mean.js'
import { badRequest, notFound, ServiceError } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import { findNodesUsing } from '../model/effective.js'
import type { View } from '../model/stored.js'
import { installSteps } from '../monitor/metrics.js'
import { findStaleSliced } from '../monitor/stale.js'
import { evaluate, isNodeSet } from '../node-set/evaluate.js'
import { foldSliced, forMessage } from '../node-set/hostlist.js'
import type { ApiRequest, Parts } from './context.js'
import { type Entry, type Listing, listed, listQuery } from './listing.js'
import { string } from './schema.js'

type SetSources = Pick<Parts, 'status' | 'boots' | 'model' | 'trust'>

/** A set may name twice as many nodes as exist, plus this many. */
const SPARE_NAMES = 20_000

/** Maximum number of unknown names in a message. */
const MOST_NAMED = 10
/** Maximum number of names that are folded for a message. */
const MOST_FOLDED = 10_000
const LONGEST_FOLDED = 200

/** The nodes, and the groups of them, for which the signs of a set stand. */
interface Scope {
  readonly view: View
  readonly isInside: (node: string) => boolean
  /** Absent: all. */
  readonly groups: readonly string[] | undefined
}

/** Finds the nodes of a name or a set (rules 12.1), in short steps. Throws 400, and 404 with `wayOut`. */
function* nodesIn(parts: SetSources, text: string, scope: Scope, wayOut = ''): Generator<unknown, string[]> {
  const { view, groups } = scope
  // The message tells it, so nodes of other groups do not count.
  const inGroups = (groups ?? []).reduce(
    (sum, name) => sum + (view.index.members(name)?.all.values.length ?? 0),
    0
  )
  const most = SPARE_NAMES + 2 * (groups ? inGroups : view.names('node').length)
  const names: string[] = []
  const missing: string[] = []
  for (const name of yield* evaluate(text, group => membersOf(parts, group, scope), most))
    yield (view.get('node', name) ? names : missing).push(name)
  if (missing.length === 0) return names
  // The @ of a group is easily forgotten.
  const group = view.get('group', text) ? ` (did you mean @${text}?)` : ''
  if (!isNodeSet(text)) throw notFound(`node ${text} does not exist${group}`, 'unknown-node-set')
  // Of many it is rather the set that is wrong.
  const meant = missing.length > 1 ? '' : didYouMean(missing[0] ?? '', view.names('node'))
  const told = yield* namesForMessage(missing)
  throw notFound(
    `node set ${text.slice(0, 200)}: there is no node ${told}${meant}${wayOut}`,
    'unknown-node-set'
  )
}

/**
 * Finds the nodes of a set as `nodesIn`; null: all that the caller may see. `*` and `@` stand for nodes of
 * the caller's groups alone (rules 5.2). Throws 403 if a name lies outside of them, and for names that do not
 * exist, so that it tells nothing of others.
 */
export function* nodesFor(
  parts: SetSources,
  caller: Caller,
  text: string | null,
  view: View,
  wayOut?: string
): Generator<unknown, readonly string[]> {
  const groups = groupsOf(caller)
  const isInside = (node: string) => !groups || groups.includes(view.get('node', node)?.group ?? '')
  if (text === null) return groups ? view.names('node').filter(isInside) : view.names('node')
  const scope = { view, isInside, groups }
  if (caller.kind !== 'user' || !groups) return yield* nodesIn(parts, text, scope, wayOut)
  const refusal = () => outsideLimit(caller, `node set ${text}; &@${groups[0]} behind a set limits it`)
  try {
    const names = yield* nodesIn(parts, text, scope)
    if (names.every(isInside)) return names
  } catch (error) {
    if (error instanceof ServiceError && error.status === 404) throw refusal()
    throw error
  }
  throw refusal()
}

/** Query keys of a list of nodes. */
export const nodesQuery = { ...listQuery, nodes: string('a node set: limits the list to these nodes') }

/** Lists what `entriesOf` returns for each node of the set in the query, or for all. */
export const listedNodes = (
  parts: SetSources,
  request: ApiRequest,
  listing: Listing,
  entriesOf: (name: string) => readonly Entry[]
) =>
  listed(request, listing, function* () {
    const wanted = request.query.get('nodes')
    const names = yield* asPauses(nodesFor(parts, request.caller, wanted, parts.model.view))
    return names.flatMap(entriesOf)
  })

/** Returns names folded if that is short, else the first ones and the number of the others. */
function* namesForMessage(names: readonly string[]): Generator<void, string> {
  const folded = names.length > MOST_FOLDED ? '' : yield* foldSliced(names)
  return folded !== '' && folded.length <= LONGEST_FOLDED ? folded : firstOf(names, MOST_NAMED)
}

const CREATES_NONE =
  '; a set cannot create nodes; use a table: svcctl import FILE ' +
  '(on the controller also svcd import --csv FILE), or POST /config/node?format=csv'

/** The same for a change: its 404 says how to create nodes. */
export const changedNodesFor = (parts: SetSources, caller: Caller, text: string, view: View) =>
  nodesFor(parts, caller, text, view, CREATES_NONE)

/** Steps of a boot that failed. */
const REFUSED: ReadonlySet<string> = new Set(['no-script', 'no-file', 'refused', 'bmc'])

const invalid = (why: string) => badRequest(`node set: ${why}`, 'invalid-set')
const notThere = (why: string) => notFound(`node set: ${why}`, 'unknown-node-set')

const STALE = '@stale needs the value yes: @stale:yes'

/** The standings of a node by its proofs (rules 15.5). */
const STANDINGS = ['good', 'bad', 'unknown', 'pending']

/** Evaluates a term behind an @ (rules 12.2). */
function* membersOf(
  { status, boots, model, trust }: SetSources,
  group: string,
  { view, isInside, groups }: Scope
): Generator<void, Iterable<string>> {
  const all = () => (groups ? view.names('node').filter(isInside) : view.names('node'))
  if (group === 'all') return all()
  const [, kind, value = ''] = /^([a-z]+):(.*)$/s.exec(group) ?? []
  if (kind === 'status' && value === '')
    throw invalid('@status: needs a word behind it, as in @status:installer.failed')
  if (kind === 'status') return yield* inState(status, value, all())
  if (kind === 'stale') {
    if (value !== 'yes') throw invalid(STALE)
    return (yield* findStaleSliced({ view, cluster: model.cluster }, boots)).filter(isInside)
  }
  if (kind === 'trust') {
    if (!STANDINGS.includes(value)) throw invalid(`@trust: needs one of ${STANDINGS.join(', ')}: @trust:bad`)
    return yield* filterInSteps(all(), name => trust.is(name, value))
  }
  if (kind === 'osimage') {
    const found = view.get('osimage', value) && (yield* findNodesUsing(view, 'osimage', value))
    const users = found?.filter(isInside)
    // An image that only others use is as one that is not there.
    if (!users || (groups && users.length === 0))
      throw notThere(`there is no OS image ${forMessage(value)}${didYouMean(value, view.names('osimage'))}`)
    return users
  }
  if (kind !== undefined)
    throw invalid(
      `@${forMessage(kind)}: is not known; ` +
        'there is @GROUP, @all, @osimage:NAME, @stale:yes, @status:WORD and @trust:WORD'
    )
  if (groups?.includes(group) === false || !view.get('group', group)) {
    if (group === 'failed') return yield* filterInSteps(all(), name => isFailing({ status, boots }, name))
    const meant = group === 'stale' ? `; ${STALE}` : didYouMean(group, view.names('group'))
    throw notThere(`there is no group ${forMessage(group)}${meant}`)
  }
  return view.index.members(group)?.all.values ?? []
}

/** The nodes in this state. Throws 400 for a word that begins no state: an empty set would look healthy. */
function* inState(status: SetSources['status'], word: string, nodes: readonly string[]) {
  const steps = installSteps.map(step => `installer.${step}`)
  let isKnown = steps.some(step => step.startsWith(word) || isIn(word, step))
  const found = yield* filterInSteps(nodes, name => {
    isKnown ||= status.history(name).some(({ state }) => state.startsWith(word))
    return isIn(status.state(name) ?? '', word)
  })
  if (found.length > 0 || isKnown) return found
  throw invalid(
    `@status:${word.slice(0, 100)}: no node has reported such a state; ` +
      `those of an installation are installer.${installSteps.join(', ')}`
  )
}

/** Whether the status page shows a node as failed: in trouble, failed, degraded, or refused last. */
function isFailing({ status, boots }: Pick<SetSources, 'status' | 'boots'>, name: string): boolean {
  const state = status.state(name) ?? ''
  const isBad = isIn(state, 'installer.failed') || state.startsWith('running.')
  const { step = '' } = boots.present(name)?.step ?? {}
  return isBad || status.problem(name) !== null || REFUSED.has(step)
}

/** Whether a state is this word, or begins with it: `installer.failed: unpack: no space`. */
const isIn = (state: string, word: string) =>
  state === word || (state.startsWith(word) && /^[:\s]/.test(state.slice(word.length)) && word !== '')
