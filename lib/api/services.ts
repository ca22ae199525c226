import { notFound, ServiceError, unavailable } from '../errors.js'
import type { Answer } from '../http/route.js'
import { changing } from '../services/control.js'
import type { Service } from '../services/service.js'
import { acknowledge } from './asynchronous.js'
import { type ApiRoute, actorOf, type Parts } from './context.js'
import { shapes } from './shapes.js'

const names = ['dhcp', 'dns'] as const
const get = { method: 'GET', body: 'ignored' } as const

/** Control of the DHCP and the DNS server, and what would be written for them (rules 10.9). */
export function serviceRoutes(parts: Parts): ApiRoute[] {
  const { services, config } = parts
  const service = (name: (typeof names)[number]): Service => {
    const found = services.of(name)
    if (!found) throw notFound(`there is no service ${name}: [${name}] server = ${config[name].server}`)
    return found
  }
  return names.flatMap(name => [
    ...changing.map(
      (verb): ApiRoute => ({
        ...get,
        path: `/service/${name}/${verb}`,
        effect: 'changes',
        access: 'user',
        codes: [200, 401, 403, 404, 503],
        summary: `${verb[0]?.toUpperCase()}${verb.slice(1)} the ${name.toUpperCase()} server, by an asynchronous request`,
        output: shapes.acknowledgement,
        handler: async request => {
          const managed = service(name)
          const job = await parts.jobs.submit({
            kind: verb,
            object: `service ${name}`,
            by: actorOf(request).who,
            lanes: [`service ${name}`],
            run: async ({ signal, line }) => {
              const words = await managed.control(verb, signal)
              for (const text of words.split('\n')) if (text !== '') line(text)
            }
          })
          // How it ends is told by its record.
          job.done.catch(() => {})
          return acknowledge(job.id)
        }
      })
    ),
    {
      ...get,
      path: `/service/${name}/status`,
      effect: 'reads',
      access: 'user',
      codes: [200, 401, 404, 503],
      summary: `Whether the ${name.toUpperCase()} server runs, asked now, and how it is`,
      output: shapes.serviceStatus,
      handler: async () => {
        const { state, words } = await attempted(service(name).status())
        const shown = { ...parts.health.of(name), server: config[name].server, state, output: words }
        return { status: 200, body: { monitor: { service: { [name]: shown } } } }
      }
    },
    {
      ...get,
      path: `/config/${name}/_preview`,
      effect: 'reads',
      access: 'admin',
      codes: [200, 401, 403, 404, 503],
      summary: `The files that would be written for the ${name.toUpperCase()} server, and how they differ from those in force`,
      output: shapes.preview,
      handler: async (): Promise<Answer> => {
        const files = await attempted(service(name).preview())
        const server = JSON.stringify(config[name].server)
        return { status: 200, json: `{"config":{"${name}":{"server":${server},"files":${files}}}}` }
      }
    }
  ])
}

/** What fails here is no fault of the request. */
async function attempted<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw unavailable(error instanceof Error ? error.message : String(error), error)
  }
}
