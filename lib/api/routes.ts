import { accessRoutes } from './access.js'
import { bootRoutes } from './boot.js'
import { clusterRoutes } from './cluster.js'
import type { ApiRoute, Parts } from './context.js'
import { imageRoutes } from './images.js'
import { interfaceRoutes } from './interfaces.js'
import { jobRoutes } from './jobs.js'
import { monitorRoutes } from './monitor.js'
import { networkRoutes } from './network.js'
import { objectRoutes } from './objects.js'
import { openapi } from './openapi.js'
import { osimageRoutes } from './osimage.js'
import { renderRoutes } from './render.js'
import { secretRoutes } from './secrets.js'
import { serviceRoutes } from './services.js'

/** The whole route table: the router, the access check and the documents are made from it. */
export function routes(parts: Parts): ApiRoute[] {
  const common = { readable: 'user', members: true, updated: 204, cloned: 201, deleted: 204 } as const
  const table: ApiRoute[] = [
    ...accessRoutes(parts),
    ...clusterRoutes(parts),
    ...networkRoutes(parts),
    ...objectRoutes(parts, { ...common, type: 'group' }),
    ...interfaceRoutes(parts, 'group'),
    ...objectRoutes(parts, { ...common, type: 'node', members: false }),
    ...interfaceRoutes(parts, 'node'),
    ...renderRoutes(parts),
    ...objectRoutes(parts, { ...common, type: 'bmcsetup', updated: 200 }),
    ...objectRoutes(parts, { ...common, type: 'switch', members: false }),
    ...objectRoutes(parts, { ...common, type: 'otherdev', members: false }),
    ...secretRoutes(parts),
    ...osimageRoutes(parts),
    ...imageRoutes(parts),
    ...bootRoutes(parts),
    ...monitorRoutes(parts),
    ...jobRoutes(parts),
    ...serviceRoutes(parts)
  ]
  return [...table, documentRoute(table)]
}

/** The table as a document; it is made once, with a row for itself. */
function documentRoute(table: readonly ApiRoute[]): ApiRoute {
  let text: string | undefined
  const route: ApiRoute = {
    method: 'GET',
    path: '/openapi.json',
    effect: 'reads',
    access: 'anyone',
    body: 'ignored',
    codes: [200],
    summary: 'This interface as an OpenAPI 3.1 document',
    output: { type: 'object' },
    handler: () => {
      text ??= JSON.stringify(openapi([...table, route]))
      return { status: 200, json: text }
    }
  }
  return route
}
