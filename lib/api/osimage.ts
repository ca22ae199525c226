import { badRequest } from '../errors.js'
import type { KernelWish } from '../image/kernel.js'
import { file, freeText } from '../model/field.js'
import { acknowledgement, finish } from './asynchronous.js'
import { bodyOf, objectBody } from './body.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, param } from './context.js'
import { objectRoutes } from './objects.js'
import { get, post } from './row.js'

/** The fields of a kernel change (rules 2.8); at least one must be given. */
const kernel = bodyOf(
  { about: 'OS image {osimage}', at: 'config.osimage.{osimage}' },
  {
    kernelfile: { type: file, meaning: 'file below /boot of the image' },
    initrdfile: { type: file, meaning: 'file below /boot of the image; built where absent' },
    kernelversion: { type: freeText, also: ['kernver'], meaning: 'alone it means vmlinuz-<version>' }
  },
  (values, about): KernelWish => {
    const wish = Object.entries(values).filter(([, value]) => value !== null)
    if (wish.length === 0)
      throw badRequest(`${about}: one of the fields ${Object.keys(values).join(', ')} is needed`)
    return Object.fromEntries(wish)
  }
)

/** OS images as objects, and what is done with their files: pack, kernel, clone (rules 2.8). */
export function osimageRoutes(parts: Parts): ApiRoute[] {
  const { images } = parts
  const one = '/config/osimage/{osimage}'
  const nameOf = (request: ApiRequest) => param(request, 'osimage')
  return [
    ...objectRoutes(parts, 'osimage', {
      columns: ['name', 'distribution', 'kernelversion', 'imagefile', 'comment'],
      minimal: true,
      members: true,
      cloned: 'elsewhere',
      save: (...args) => images.save(...args),
      remove: (...args) => images.remove(...args)
    }),
    post('/config/osimage', {
      access: 'user',
      answers: [],
      refuses: [400],
      summary: 'Not supported: an image is posted to its own path',
      handler: () => {
        throw badRequest('an OS image is posted to /config/osimage/{osimage}')
      }
    }),
    get(`${one}/_pack`, {
      access: 'user',
      changes: true,
      answers: [200, 204],
      summary: 'Pack an OS image; with Prefer: respond-async answered at once',
      output: acknowledgement,
      handler: async request => finish(request, await images.pack(nameOf(request), actorOf(request)), 204)
    }),
    post(`${one}/kernel`, {
      access: 'user',
      answers: [200, 204],
      summary:
        'Give an OS image another kernel of its directory and pack it; Prefer: respond-async as for _pack',
      body: kernel,
      output: acknowledgement,
      handler: async (request, wish) =>
        finish(request, await images.kernel(nameOf(request), wish, actorOf(request)), 204)
    }),
    post(`${one}/_clone`, {
      access: 'user',
      answers: [200, 201],
      summary:
        'Copy an OS image with its directory under the name in newosimage; Prefer: respond-async as for _pack',
      body: objectBody('osimage'),
      handler: async (request, given) => {
        const job = await images.clone(nameOf(request), given, actorOf(request))
        return finish(request, job, 201, `OS image ${nameOf(request)} cloned to ${given.newName}`)
      }
    })
  ]
}
