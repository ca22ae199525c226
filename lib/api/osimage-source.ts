import { freeText, objectName } from '../model/field.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, param } from './context.js'
import { acknowledgement, answerWhenDone } from './jobs.js'
import { bodyOf, post } from './row.js'

/** The body of an import and of an update. */
const sourceOf = (required: boolean) =>
  bodyOf(
    { about: 'OS image {osimage}', at: 'config.osimage.{osimage}' },
    {
      source: {
        type: freeText,
        ...(required ? { required: true as const } : {}),
        meaning: 'docker://REGISTRY/NAME, oci-archive:/PATH, docker-archive:/PATH or containers-storage:NAME'
      }
    },
    ({ source }) => ({ source: source || null })
  )

/** The body of a push. */
const target = bodyOf(
  { about: 'OS image {osimage}', at: 'config.osimage.{osimage}' },
  {
    target: { type: freeText, required: true, meaning: 'docker://REGISTRY/NAME:TAG' },
    tag: { type: objectName, meaning: 'tag of the OS image; absent: what is packed now' }
  }
)

/** OS images that are made of container images, and become some (rules 9.16, 9.17). */
export function osimageSourceRoutes({ images }: Parts): ApiRoute[] {
  const one = '/config/osimage/{osimage}'
  const nameOf = (request: ApiRequest) => param(request, 'osimage')
  return [
    post(`${one}/_import`, {
      access: 'user',
      answers: [200, 201],
      summary: 'Make an OS image of a container image; Prefer: respond-async as for _pack',
      body: sourceOf(true),
      output: acknowledgement,
      handler: async (request, { source }) => {
        const name = nameOf(request)
        const job = await images.import(name, source as string, actorOf(request))
        return answerWhenDone(request, job, 201, `OS image ${name} imported from ${source}`)
      }
    }),
    post(`${one}/_update`, {
      access: 'user',
      answers: [200, 204],
      summary:
        'Fetch the container image of an OS image anew if it has changed, or another one; ' +
        'Prefer: respond-async as for _pack',
      body: sourceOf(false),
      output: acknowledgement,
      handler: async (request, { source }) =>
        answerWhenDone(request, await images.update(nameOf(request), source, actorOf(request)), 204)
    }),
    post(`${one}/_push`, {
      access: 'user',
      answers: [200, 204],
      summary: 'Put the pack of an OS image into a registry; Prefer: respond-async as for _pack',
      body: target,
      output: acknowledgement,
      handler: async (request, { target, tag }) => {
        const job = await images.upload(nameOf(request), target as string, tag, actorOf(request))
        return answerWhenDone(request, job, 204)
      }
    })
  ]
}
