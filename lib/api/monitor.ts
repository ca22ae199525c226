import { notFound, tryLater } from '../base/errors.js'
import type { Config } from '../config/types.js'
import { groupOf, isInstaller, settingsOf } from '../model/effective.js'
import { type FieldType, freeText, ValueError } from '../model/field.js'
import type { Actor } from '../model/model.js'
import type { View } from '../model/stored.js'
import type { NodeDoc } from '../model/types/node.js'
import { isRescue } from '../monitor/boot-steps.js'
import type { ServiceState } from '../monitor/health.js'
import { withoutOutput } from '../monitor/node-status.js'
import { type ServiceName, serviceNames } from '../services/backends.js'
import { serverLine } from '../services/services.js'
import { type ApiRequest, type ApiRoute, actorOf, ok, type Parts, param } from './context.js'
import type { Listing } from './listing.js'
import { listedNodes, nodesQuery } from './node-sets.js'
import { bodyOf, get, post } from './row.js'
import { at, list, object, orNull, plainText, type Schema, standing, string, time, word } from './schema.js'

const longestState = 1024

const nodeState: FieldType<string> = {
  ...freeText,
  expected: `a string of 1 to ${longestState} characters`,
  read: value => {
    const state = freeText.read(value)
    if (state === '') throw new ValueError('')
    // A character is at most two units: a long text need not be split to be counted.
    if (state.length > 2 * longestState || [...state].length > longestState)
      throw new ValueError(`is longer than ${longestState} characters`)
    return state
  }
}

const report = bodyOf(
  { about: 'node {node}', at: 'monitor.status.{node}' },
  { state: { type: nodeState, required: true, meaning: 'what the node is doing' } }
)

const reason = orNull(string('why the node got no boot script, a doubtful one, or repeats its installation'))
const lastState = object({ name: string(), state: orNull(string()), since: orNull(time), reason })
const listing: Listing = { title: 'state', place: 'monitor.status.{node}', item: lastState }

/** Returns the schema of a service's status; `more`: fields of this service. */
export const serviceSchema = (more: Schema = {}) =>
  at(
    'monitor.service.{service}',
    object({ status: word('ok', 'failed'), reason: string(), since: time, ...more })
  )

const isService = (name: string): name is ServiceName => (serviceNames as readonly string[]).includes(name)

/** The 404 for a service that is unknown, or that the ini turns off. */
export const noService = (config: Config, name: string) =>
  notFound(
    isService(name)
      ? `there is no service ${name}: ${serverLine(config, name)}`
      : name === 'boot'
        ? 'service boot: no node was taken over that an admin has not seen'
        : `there is no service ${name}`
  )

/** State reports of nodes during installation, and the health of the daemon (rules 6.2, 6.3). */
export const monitorRoutes = (parts: Parts): ApiRoute[] => [...nodeStateRoutes(parts), ...healthRoutes(parts)]

/** The states that nodes report, and their listing. */
function nodeStateRoutes(parts: Parts): ApiRoute[] {
  const { model, status, trace, images, metrics } = parts
  return [
    post('/monitor/node/{node}', 'node', {
      operator: true,
      limited: 'node',
      answers: [204],
      summary: 'Report the state of a node',
      body: report,
      handler: async (request, { state }) => {
        const { name } = model.get('node', param(request, 'node'))
        if (request.caller.kind === 'node') trace.report(name, withoutOutput(state), request)
        const before = status.history(name).at(-1)
        await status.report(name, state)
        metrics.reported(before, status.history(name).at(-1))
        await images.reported(name, state)
        if (/^installer\.completed\b/.test(state)) await endInstallation(parts, name, state, actorOf(request))
        return { status: 204 }
      }
    }),
    get('/monitor/node', 'user', {
      limited: 'filtered',
      summary: 'The last state of all nodes, since when, and why one got no boot script',
      query: nodesQuery,
      output: at(listing.place, lastState),
      handler: request =>
        listedNodes(parts, request, listing, name => {
          const { state = null, time: since = null } = status.history(name).at(-1) ?? {}
          const shown = { name, state, since, reason: status.problem(name) }
          return [{ name, values: () => shown }]
        })
    }),
    get('/monitor/node/{node}', 'minimal', {
      limited: 'node',
      summary: 'The last state of a node, since when, and the states before it',
      output: at(
        'monitor.status.{node}',
        object({
          state: orNull(string()),
          since: orNull(time),
          reason,
          history: list(object({ state: string(), time }))
        })
      ),
      handler: request => {
        const { name } = model.get('node', param(request, 'node'))
        const state = status.state(name)
        const history = status.history(name)
        const shown =
          request.caller.kind === 'anonymous'
            ? { state: state && withoutOutput(state) }
            : { state, since: history.at(-1)?.time ?? null, reason: status.problem(name), history }
        return ok({ monitor: { status: { [name]: shown } } })
      }
    })
  ]
}

/** The health of services and of this controller, and metrics. */
function healthRoutes({ health, config, metrics, site }: Parts): ApiRoute[] {
  return [
    get('/monitor/service/{service}', 'minimal', {
      summary: 'Whether a service is well, and if not, why',
      output: serviceSchema({ controller: standing }),
      handler: request => {
        const name = param(request, 'service')
        const state = health.of(name)
        if (!state) throw noService(config, name)
        const controller = name === 'svcd' && site ? { controller: site.status } : {}
        return healthAnswer({ [name]: { ...state, ...controller } }, request)
      }
    }),
    get('/monitor/primary', 'anyone', {
      summary: 'Whether this controller writes: 200, or 503 while another one does',
      output: object({ primary: { type: 'boolean' } }, ['primary']),
      handler: () => {
        if (site && site.notPrimary !== '') throw tryLater(site.notPrimary, 5)
        return ok({ primary: true })
      }
    }),
    get('/metrics', config.http.metrics === 'open' ? 'anyone' : 'user', {
      summary: 'Metrics in the text format of Prometheus',
      output: plainText,
      handler: async () => ({ status: 200, ...(await metrics.text()) })
    }),
    get('/monitor/status', 'minimal', {
      summary: 'Health of the daemon and of everything that it manages',
      output: serviceSchema(),
      handler: request => healthAnswer(health.all(), request)
    })
  ]
}

/** Ends a rescue with its installation (rules 6.15), and the netboot of a node installed once (6.14). */
async function endInstallation({ model }: Parts, name: string, state: string, actor: Actor) {
  const after = (view: View): NodeDoc | undefined => {
    const node = view.get('node', name)
    if (!node) return undefined
    const { rescue, ...rest } = node
    if (isRescue(state)) return rescue === undefined ? undefined : rest
    const settings = settingsOf(node, groupOf(view, node), model.cluster)
    const isOnDisk = settings.localinstall || isInstaller(settings.provision_method)
    return settings.netboot && settings.netboot_once && isOnDisk ? { ...node, netboot: false } : undefined
  }
  if (after(model.view) === undefined) return
  await model.change(actor, tx => {
    const node = after(tx)
    if (node) tx.put('node', name, node)
  })
}

/** The states of services: 503 if one has failed. Without a token reasons are omitted (rules 5.3). */
function healthAnswer(states: Readonly<Record<string, ServiceState>>, { caller }: ApiRequest) {
  const bare = caller.kind === 'anonymous'
  const entries = Object.entries(states)
  const shown = entries.map(([name, state]) => [name, bare ? { status: state.status } : state])
  const answer = { monitor: { service: Object.fromEntries(shown) } }
  const failed = entries.filter(([, { status }]) => status === 'failed')
  if (failed.length === 0) return ok(answer)
  const told = failed.map(([name, { status, reason }]) => `service ${name}: ${bare ? status : reason}`)
  return { status: 503, body: { message: told.join('; '), ...answer } }
}
