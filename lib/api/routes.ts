import { bootRoutes } from './boot.js'
import { bootsRoutes } from './boots.js'
import { clusterRoutes } from './cluster.js'
import { consoleRoutes } from './consoles.js'
import type { ApiRoute, Parts } from './context.js'
import { controlRoutes } from './control.js'
import { dnsRoutes } from './dns.js'
import { hasDryRun, withDryRun } from './dry-run.js'
import { eventRoutes } from './events.js'
import { exportRoutes } from './exports.js'
import { inventoryRoutes } from './inventory.js'
import { jobRoutes } from './jobs.js'
import { withQuery } from './listing.js'
import { loginRoutes } from './login.js'
import { inLuna } from './luna.js'
import { monitorRoutes } from './monitor.js'
import { networkRoutes } from './network.js'
import { nodeRoutes, rehearsalRoutes } from './node.js'
import { interfaceRoutes, objectRoutes } from './objects.js'
import { openapi } from './openapi.js'
import { osimageRoutes, osimageSourceRoutes, osimagetagRoutes, runningRoutes } from './osimage.js'
import { pageRoutes } from './page.js'
import { withPreconditions } from './preconditions.js'
import { checksQuery, get } from './row.js'
import { secretRoutes } from './secrets.js'
import { serviceRoutes } from './services.js'
import { programTokenRoutes, tokenRoutes } from './token.js'
import { trustRoutes } from './trust.js'
import { unknownRoutes } from './unknown.js'

/** The whole route table: router, access check and documents are made from it. */
export function routes(parts: Parts): ApiRoute[] {
  const ours: ApiRoute[] = [
    ...pageRoutes(),
    ...tokenRoutes(parts),
    ...loginRoutes(parts),
    ...programTokenRoutes(parts),
    ...configuration(parts),
    ...bootRoutes(parts),
    ...trustRoutes(parts),
    ...monitorRoutes(parts),
    ...bootsRoutes(parts),
    ...exportRoutes(parts),
    ...inventoryRoutes(parts),
    ...unknownRoutes(parts),
    ...eventRoutes(parts),
    ...runningRoutes(parts),
    ...jobRoutes(parts),
    ...serviceRoutes(parts),
    ...controlRoutes(parts),
    ...consoleRoutes(parts)
  ]
  const checked = ours.map(route => (hasDryRun(route) ? withDryRun(route, parts) : route))
  const strict = withPreconditions(checked, parts, configuration).map(route =>
    checksQuery(route.path) ? withQuery(route) : route
  )
  const table = parts.config.http.dialect === 'luna' ? inLuna(strict, parts) : strict
  let text: string | undefined
  // Made on first use, with a row for itself.
  const document = get('/openapi.json', 'anyone', {
    summary: 'This interface as an OpenAPI 3.1 document',
    output: { type: 'object' },
    handler: () => {
      text ??= JSON.stringify(openapi(all))
      return { status: 200, json: text }
    }
  })
  const all = [...table, document]
  return all
}

/** The routes of what is configured. */
function configuration(parts: Parts): ApiRoute[] {
  return [
    ...clusterRoutes(parts),
    ...networkRoutes(parts),
    ...dnsRoutes(parts),
    ...objectRoutes(parts, 'group', {
      members: true,
      columns: ['name', 'osimage', 'osimagetag', 'domain', 'netboot', 'BOOTIF.network', 'comment']
    }),
    ...interfaceRoutes(parts, 'group'),
    ...objectRoutes(parts, 'node', {
      columns: ['name', 'group', 'osimage', 'osimagetag', 'macaddr', 'BOOTIF.ipaddress', 'status', 'comment']
    }),
    ...interfaceRoutes(parts, 'node'),
    ...nodeRoutes(parts),
    ...objectRoutes(parts, 'file', {
      members: true,
      columns: ['name', 'path', 'kind', 'owner', 'group', 'mode', 'comment']
    }),
    ...objectRoutes(parts, 'disklayout', { members: true }),
    ...objectRoutes(parts, 'bmcsetup', { members: true, updated: 200 }),
    ...objectRoutes(parts, 'switch'),
    ...objectRoutes(parts, 'otherdev'),
    ...secretRoutes(parts),
    ...osimageRoutes(parts),
    ...osimageSourceRoutes(parts),
    ...rehearsalRoutes(parts),
    ...osimagetagRoutes(parts)
  ]
}
