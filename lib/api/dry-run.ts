import { groupsOf } from '../auth/access.js'
import { asPauses, runFairly } from '../base/concurrency.js'
import { clip } from '../base/log.js'
import { layoutProblems } from '../disk-layout/check.js'
import type { RemovedDirectory } from '../image/tree-reconciler.js'
import { type Difference, differences, digestChanges } from '../model/differences.js'
import type { Docs } from '../model/docs.js'
import { findImpact, type Impact } from '../model/impact.js'
import type { Change } from '../model/stored.js'
import { actionOf, countObjects, objectTypes, participles } from '../model/types.js'
import { addedWarnings } from '../model/warnings.js'
import { foldSliced } from '../node-set/hostlist.js'
import { type Captured, capture } from '../services/capture.js'
import { foreignNameWarnings, ownedZones } from '../services/dns/data.js'
import type { DifferingFile } from '../services/services.js'
import { type ApiRequest, type ApiRoute, type Parts, replaced } from './context.js'
import { acknowledgement } from './jobs.js'
import { choice } from './listing.js'
import { MOST_CHECKED, withWarnings } from './objects.js'
import { word } from './schema.js'

/** Changes that a job makes, though it is not always acknowledged, or that have a dry run of their own. */
const withoutDryRun = new Set([
  '/config/cluster/{controller}/_delete',
  '/config/cluster/import',
  '/config/token/{token}',
  '/config/token/{token}/_delete',
  '/config/osimage',
  '/config/osimage/{osimage}/_clone'
])

export const dryRunQuery = { dryrun: word('no', 'yes') }

/** Whether a request is a dry run. Throws 400. */
export const isDryRun = ({ query }: ApiRequest) => choice(query, 'dryrun', ['no', 'yes']) === 'yes'

/** Whether a route has a dry run: the changes of the configuration (rules 12.7). */
export const hasDryRun = ({ path, effect, method, output }: ApiRoute) =>
  effect === 'changes' &&
  path.startsWith('/config/') &&
  (method === 'POST' || path.endsWith('/_delete')) &&
  // An acknowledgement is the answer of a job, which no transaction rolls back.
  output !== acknowledgement &&
  !withoutDryRun.has(path)

/** Adds the dry run: `dryrun=yes` rolls the transaction back and reports its changes. */
export function withDryRun(route: ApiRoute, parts: Parts): ApiRoute {
  const { services, model, images, config, inventories, trust } = parts
  return {
    ...route,
    codes: [...new Set([200, ...route.codes])],
    query: { ...route.query, ...dryRunQuery },
    handler: async request => {
      if (!isDryRun(request)) return route.handler(request)
      const warnings: string[] = []
      const dryRun: ApiRequest['dryRun'] = (changes, view, cluster) => {
        warnings.push(...addedWarnings(changes.slice(0, MOST_CHECKED), model.view, view, cluster))
        return new DryRun(
          changes,
          services.differing(changes, view, cluster),
          findImpact(changes, { view: model.view, cluster: model.cluster }, { view, cluster }),
          images.trees.foretold(changes, view),
          config.dns.server !== 'none' && changes.some(touchesZones) ? capture(view, cluster) : undefined
        )
      }
      try {
        await route.handler(replaced(request, { dryRun, warnings }))
      } catch (error) {
        if (!(error instanceof DryRun)) throw error
        const felt = await runFairly(error.felt(), request)
        if (error.names) {
          const zones = await runFairly(ownedZones(error.names), request)
          const before = await runFairly(ownedZones(capture(model.view, model.cluster)), request)
          for (const zone of before.keys()) zones.delete(zone)
          warnings.push(...(await foreignNameWarnings(zones)))
        }
        warnings.push(...layoutProblems(felt.layouts, node => inventories.disksOf(node)))
        warnings.push(...trust.warningsOf(felt.required))
        // They name nodes of other groups.
        const files = groupsOf(request.caller) ? undefined : await error.files()
        return withWarnings(dryRunAnswer(error, files, felt, await runFairly(diskWarning(felt), request)), [
          ...new Set(warnings)
        ])
      }
      throw new TypeError(`${route.path} has changed something in a dry run`)
    }
  }
}

/** Rolls a transaction back, and carries its changes. */
class DryRun extends Error {
  constructor(
    readonly changes: readonly Change[],
    readonly files: () => Promise<DifferingFile[]>,
    readonly felt: () => Generator<void, Impact>,
    readonly directories: readonly RemovedDirectory[],
    /** The sources of DNS names after the change, if zones may differ. */
    readonly names: Captured | undefined
  ) {
    super('a dry run')
  }
}

const touchesZones = ({ type, before, after }: Change) =>
  type === 'network' || (before as Docs['node'])?.domain !== (after as Docs['node'])?.domain

/** Stored types that are part of the interface. */
const shownTypes = new Set([...Object.keys(objectTypes), 'osimagetag', 'secrets', 'cluster'])

/** The last properties of the answer; '' if no directory would be removed. */
function directoriesJson(directories: readonly RemovedDirectory[]): string {
  if (directories.length === 0) return ''
  const named = directories.some(({ controller }) => controller !== undefined)
  const controllers = directories.map(({ controller = null }) => controller)
  const shown = { directories: directories.map(({ path }) => path), ...(named ? { controllers } : {}) }
  return `,${JSON.stringify(shown).slice(1, -1)}`
}

function dryRunAnswer(
  { changes: all, directories }: DryRun,
  files: DifferingFile[] | undefined,
  felt: Impact,
  disks: string
) {
  const removed = directories.map(({ path, controller }) => {
    const where = controller === undefined ? '' : ` on controller ${controller}`
    return `; the directory ${path} would be removed${where}`
  })
  const changes = all.filter(({ type }) => shownTypes.has(type))
  function* text(): Generator<string> {
    const mark = yield* asPauses(digestChanges(all))
    yield `{"message":${JSON.stringify(
      `${changeCounts(changes)}${impactText(changes, felt)}${disks}${removed.join('')}`
    )},"changes":[`
    const given: object[] = []
    for (const [i, change] of changes.entries()) {
      const { type, name } = change
      const fields = differences(change)
      given.push(...addressesIn(type, name, fields))
      yield `${i > 0 ? ',' : ''}${JSON.stringify({ type, name, action: actionOf(change), fields })}`
    }
    yield `],"addresses":${JSON.stringify(given)},${files ? `"files":${JSON.stringify(files)},` : ''}` +
      `"nodes":${JSON.stringify({ count: felt.count, first: felt.examples })}` +
      `${directoriesJson(directories)},"mark":"${mark}"}`
  }
  return { status: 200, json: { [Symbol.iterator]: text } }
}

function addressesIn(type: string, name: string, fields: readonly Difference[]): object[] {
  return fields.flatMap(({ field, after }) => {
    if (!/(?:^|\.)ipaddress$/.test(field) || after === null) return []
    const of = field.slice(0, -'.ipaddress'.length)
    return [{ type, name, interface: of, ipaddress: after }]
  })
}

/** The number of nodes that a change of other objects affects. */
function impactText(changes: readonly Change[], { count }: Impact): string {
  if (count === 0 || changes.some(({ type }) => type === 'node')) return ''
  return `; ${countObjects('node', count)} would get other values`
}

/** Maximum length of the names of nodes whose disks would be written. */
const mostOfNames = 500

/** Warns of disks to be written, which nobody expects of a small change (rules 12.7). */
export function* diskWarning({ reinstalled }: Pick<Impact, 'reinstalled'>): Generator<void, string> {
  if (reinstalled.length === 0) return ''
  const names = yield* foldSliced(reinstalled)
  const whose = reinstalled.length === 1 ? 'the disk of 1 node' : `the disks of ${reinstalled.length} nodes`
  return `; ${whose} would be written at the next boot from the network: ${clip(names, mostOfNames)}`
}

/** Counts the changes of a transaction. A rename creates one and deletes one; secrets go with their owner. */
export function changeCounts(changes: readonly Change[]): string {
  const counts = new Map<string, Map<string, number>>()
  for (const change of changes) {
    const { type } = change
    const of = counts.get(type) ?? new Map<string, number>()
    // The settings of the cluster always exist for readers.
    const what = type === 'cluster' ? 'changed' : participles[actionOf(change)]
    counts.set(type, of.set(what, (of.get(what) ?? 0) + 1))
  }
  for (const [type, of] of counts) {
    const [created, deleted] = [of.get('created') ?? 0, of.get('deleted') ?? 0]
    const renamed = Math.min(created, deleted)
    if (renamed === 0) continue
    of.set('created', created - renamed)
    of.set('deleted', deleted - renamed)
    if (type !== 'secrets') of.set('renamed', renamed)
  }
  return dryRunMessage([...counts].map(([type, of]) => [type, [...of]]))
}

/** `dry run, nothing was changed: 2 nodes would be created, 1 switch would be deleted`. */
export function dryRunMessage(
  counts: Iterable<readonly [type: string, what: Iterable<readonly [participle: string, count: number]>]>
): string {
  const told: string[] = []
  for (const [type, what] of counts)
    for (const [participle, count] of what)
      if (count > 0) told.push(`${countObjects(type, count)} would be ${participle}`)
  return `dry run, nothing was changed: ${told.join(', ') || 'nothing differs'}`
}
