import { badRequest, notFound } from '../errors.js'
import type { JsonValue } from '../json.js'
import type { ServiceState } from '../monitor/health.js'
import { type ApiRequest, type ApiRoute, type Parts, param, smallBody } from './context.js'
import { open } from './envelope.js'
import { shapes } from './shapes.js'

const longestState = 1024

/** What nodes report while they install, and how the daemon is (rules 6.2, 6.3). */
export function monitorRoutes({ model, status, health, images }: Parts): ApiRoute[] {
  return [
    {
      method: 'POST',
      path: '/monitor/node/{node}',
      effect: 'changes',
      access: 'node',
      body: 'json',
      codes: [204, 400, 401, 403, 404, 503],
      summary: 'Report the state of a node',
      maxBody: smallBody,
      input: shapes.report,
      handler: async request => {
        const name = param(request, 'node')
        const state = readState(name, open(request.body, 'monitor', ['status', name]))
        model.get('node', name)
        await status.report(name, state)
        await images.reported(name, state)
        return { status: 204 }
      }
    },
    {
      method: 'GET',
      path: '/monitor/node/{node}',
      effect: 'reads',
      access: 'minimal',
      body: 'ignored',
      codes: [200, 404, 503],
      summary: 'The last state of a node, since when, and the states before it',
      output: shapes.nodeStatus,
      handler: request => {
        const { name } = model.get('node', param(request, 'node'))
        const state = status.state(name)
        const history = status.history(name)
        const shown =
          request.caller.kind === 'anonymous'
            ? { state }
            : { state, since: history.at(-1)?.time ?? null, reason: status.reason(name), history }
        return { status: 200, body: { monitor: { status: { [name]: shown } } } }
      }
    },
    {
      method: 'GET',
      path: '/monitor/service/{service}',
      effect: 'reads',
      access: 'minimal',
      body: 'ignored',
      codes: [200, 404, 503],
      summary: 'Whether a service is well, and if not, why',
      output: shapes.service,
      handler: request => {
        const name = param(request, 'service')
        const state = health.of(name)
        if (!state) throw notFound(`there is no service ${name}`)
        const answer = { monitor: { service: { [name]: shown(state, request) } } }
        if (state.status === 'ok') return { status: 200, body: answer }
        return { status: 503, body: { message: told(name, state, request), ...answer } }
      }
    },
    {
      method: 'GET',
      path: '/monitor/status',
      effect: 'reads',
      access: 'minimal',
      body: 'ignored',
      codes: [200, 503],
      summary: 'Whether the daemon and all that it manages are well, and if not, why',
      output: shapes.service,
      handler: request => {
        const all = health.all()
        const answer = {
          monitor: {
            service: Object.fromEntries(
              Object.entries(all).map(([name, state]) => [name, shown(state, request)])
            )
          }
        }
        const failed = Object.entries(all).filter(([, { status }]) => status === 'failed')
        if (failed.length === 0) return { status: 200, body: answer }
        const message = failed.map(([name, state]) => told(name, state, request)).join('; ')
        return { status: 503, body: { message, ...answer } }
      }
    }
  ]
}

/** Without a token the status alone (rules 5.3). */
const shown = (state: ServiceState, { caller }: ApiRequest) =>
  caller.kind === 'anonymous' ? { status: state.status } : state

/** What is wrong with a service; without a token, that it is. */
const told = (name: string, { status, reason }: ServiceState, { caller }: ApiRequest) =>
  `service ${name}: ${caller.kind === 'anonymous' ? status : reason}`

function readState(node: string, inner: JsonValue): string {
  const where = `node ${node}: field "state"`
  if (typeof inner !== 'object' || inner === null || Array.isArray(inner))
    throw badRequest(`node ${node}: the status must be an object with "state"`)
  for (const key of Object.keys(inner))
    if (key !== 'state') throw badRequest(`node ${node}: there is no field "${key}" in a status`)
  const { state } = inner
  if (typeof state !== 'string' || state === '')
    throw badRequest(`${where} must be a string that is not empty`)
  if (state.includes('\u0000')) throw badRequest(`${where} holds a NUL character`)
  if ([...state].length > longestState) throw badRequest(`${where} is longer than ${longestState} characters`)
  return state
}
