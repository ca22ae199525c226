import { groupsOf } from '../auth/access.js'
import { badRequest, notFound } from '../base/errors.js'
import { exported, formats } from '../exports/formats.js'
import { type ApiRoute, type Parts, param } from './context.js'
import { nodesFor } from './node-sets.js'
import { get } from './row.js'
import { plainText, string } from './schema.js'

const usualPort = '9100'
/** Query keys that belong to a single format. */
const onlyOf = { port: 'prometheus', host: 'ansible' } as const

/** The route of the nodes as other programs read them (rules 12.11). */
export function exportRoutes(parts: Parts): ApiRoute[] {
  const { model, status, inventories } = parts
  const known = Object.entries(formats).map(([name, { meaning }]) => `${name} (${meaning})`)
  return [
    get('/config/export/{format}', 'user', {
      limited: 'filtered',
      summary: `The nodes in the format of another program, without secrets: ${known.join(', ')}`,
      query: {
        nodes: string('a node set: limits the export to these nodes'),
        port: string(`prometheus: the port of the targets; default: ${usualPort}`),
        host: string('ansible: only the variables of this host')
      },
      output: plainText,
      handler: request => {
        const { query } = request
        const name = param(request, 'format')
        const format = Object.hasOwn(formats, name) ? formats[name] : undefined
        if (!format)
          throw notFound(
            `there is no export ${name}: there is ${Object.keys(formats).join(', ')}`,
            'no-object'
          )
        const refused = (why: string) => badRequest(`export ${name}: query key ${why}`, 'unknown-query')
        for (const [key, only] of Object.entries(onlyOf))
          if (query.has(key) && name !== only) throw refused(`"${key}" belongs to ${only}`)
        const port = query.get('port') ?? usualPort
        if (!/^[1-9]\d{0,4}$/.test(port) || Number(port) > 65_535)
          throw refused('"port" must be a number from 1 to 65535')
        const { view, cluster } = model
        const state = (node: string) => status.state(node)
        const sources = { view, cluster, state, report: (node: string) => inventories.snapshot(node) }
        const nodes = query.get('nodes')
        const options = {
          named: () => nodesFor(parts, request.caller, nodes, view),
          isWhole: nodes === null && !groupsOf(request.caller),
          ...{ port: Number(port), host: query.get('host') ?? undefined }
        }
        const json = exported(name, sources, options)
        return { status: 200, json, type: format.isJson ? 'application/json' : 'text/plain; charset=utf-8' }
      }
    })
  ]
}
