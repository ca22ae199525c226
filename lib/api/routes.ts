import { accessRoutes } from './access.js'
import { bootRoutes } from './boot.js'
import { clusterRoutes } from './cluster.js'
import type { ApiRoute, Parts } from './context.js'
import { interfaceRoutes } from './interfaces.js'
import { monitorRoutes } from './monitor.js'
import { networkRoutes } from './network.js'
import { objectRoutes } from './objects.js'
import { osimageRoutes } from './osimage.js'

/** The whole route table: the router, the access check and the documents are made from it. */
export function routes(parts: Parts): ApiRoute[] {
  const common = { readable: 'user', members: true, updated: 204, cloned: 201, deleted: 204 } as const
  return [
    ...accessRoutes(parts),
    ...clusterRoutes(parts),
    ...networkRoutes(parts),
    ...objectRoutes(parts, { ...common, type: 'group' }),
    ...interfaceRoutes(parts, 'group'),
    ...objectRoutes(parts, {
      ...common,
      type: 'node',
      members: false,
      follow: {
        renamed: (from, to) => parts.status.rename(from, to),
        removed: node => parts.status.drop(node)
      }
    }),
    ...interfaceRoutes(parts, 'node'),
    ...objectRoutes(parts, { ...common, type: 'bmcsetup', updated: 200 }),
    ...osimageRoutes(parts),
    ...bootRoutes(parts),
    ...monitorRoutes(parts)
  ]
}
