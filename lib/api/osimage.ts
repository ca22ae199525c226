import { badRequest } from '../http/errors.js'
import type { ApiRoute, Parts } from './context.js'
import { objectRoutes } from './objects.js'

/** OS images as objects (contract, "OS image and tags"). */
export function osimageRoutes(parts: Parts): ApiRoute[] {
  return [
    ...objectRoutes(parts, {
      type: 'osimage',
      updated: 204,
      cloned: undefined,
      deleted: 204,
      readable: 'minimal',
      members: true
    }),
    {
      method: 'POST',
      path: '/config/osimage',
      effect: 'changes',
      access: 'user',
      body: 'ignored',
      codes: [400, 401],
      summary: 'Not supported: an image is posted to its own path',
      handler: () => {
        throw badRequest('osimage: post to /config/osimage/{osimage}')
      }
    }
  ]
}
