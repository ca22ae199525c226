import { ServiceError, unavailable } from '../base/errors.js'
import { type ServiceName, serverOf, serviceNames } from '../services/backends.js'
import { changing } from '../services/control.js'
import type { Service } from '../services/service.js'
import { type ApiRoute, actorOf, ok, type Parts } from './context.js'
import { acknowledge, acknowledgement } from './jobs.js'
import { noService, serviceSchema } from './monitor.js'
import { get } from './row.js'
import { at, list, object, string, word } from './schema.js'

/** Control of the servers that svcd configures, and previews of their files (rules 10.9). */
export function serviceRoutes(parts: Parts): ApiRoute[] {
  return serviceNames.flatMap(name => [...controlRoutes(parts, name), ...inspectionRoutes(parts, name)])
}

const titles = {
  dhcp: 'the DHCP server',
  dns: 'the DNS server',
  tftp: 'the TFTP server',
  consoles: 'conmand, the server of consoles'
} as const

function serviceOf({ services, config }: Parts, name: ServiceName): Service {
  const found = services.of(name)
  if (!found) throw noService(config, name)
  return found
}

/** Start, stop and the like, each by an asynchronous request. */
function controlRoutes(parts: Parts, name: ServiceName): ApiRoute[] {
  const { jobs } = parts
  return changing.map(verb =>
    get(`/service/${name}/${verb}`, 'user', {
      changes: true,
      refuses: [404],
      summary: `${verb[0]?.toUpperCase()}${verb.slice(1)} ${titles[name]}, by an asynchronous request`,
      output: acknowledgement,
      handler: async request => {
        const managed = serviceOf(parts, name)
        const job = await jobs.submit({
          kind: verb,
          object: `service ${name}`,
          by: actorOf(request).who,
          lanes: [`service ${name}`],
          run: async ({ signal, line }) => {
            const words = await managed.control(verb, signal)
            for (const text of words.split('\n')) if (text !== '') line(text)
          }
        })
        return acknowledge(request, job)
      }
    })
  )
}

/** The status of a server, and the preview of its files. */
function inspectionRoutes(parts: Parts, name: ServiceName): ApiRoute[] {
  const { config, health } = parts
  return [
    get(`/service/${name}/status`, 'user', {
      refuses: [404],
      summary: `Whether ${titles[name]} runs, asked now, and how it is`,
      output: serviceSchema({
        server: string('server of the ini'),
        state: word('running', 'stopped', 'unknown'),
        output: string('what the control command says')
      }),
      handler: async () => {
        const { state, words } = await orUnavailable(serviceOf(parts, name).status())
        const shown = { ...health.of(name), server: serverOf(config, name), state, output: words }
        return ok({ monitor: { service: { [name]: shown } } })
      }
    }),
    get(`/config/${name}/_preview`, 'admin', {
      refuses: [404],
      summary: `The files that would be written for ${titles[name]}, and how they differ from those in force`,
      output: at(
        `config.${name}`,
        object({
          server: string(),
          files: list(
            object({ path: string(), text: string(), diff: string('unified, against what is in force') })
          )
        })
      ),
      handler: async () => {
        const files = await orUnavailable(serviceOf(parts, name).preview())
        const server = JSON.stringify(serverOf(config, name))
        return { status: 200, json: `{"config":{"${name}":{"server":${server},"files":${files}}}}` }
      }
    })
  ]
}

/** Turns a failure that is no fault of the request into a 503 with its reason. */
const orUnavailable = <T>(work: Promise<T>): Promise<T> =>
  work.catch((error: Error) => {
    throw error instanceof ServiceError ? error : unavailable(error.message, 'unavailable', error)
  })
