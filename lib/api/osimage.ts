import { filterInSteps } from '../base/concurrency.js'
import { badRequest } from '../base/errors.js'
import type { KernelRequest } from '../image/kernel.js'
import { findNodesUsing } from '../model/effective.js'
import { file, freeText, objectName } from '../model/field.js'
import { allTags, defaultTag, removeTag, setTag, tagsOf } from '../model/tags.js'
import type { OsimagetagDoc } from '../model/types/osimage.js'
import { runningPacks } from '../monitor/stale.js'
import { type ApiRequest, type ApiRoute, actorOf, config, ok, type Parts, param } from './context.js'
import { acknowledgement, answerWhenDone } from './jobs.js'
import { type Listing, listed, listQuery } from './listing.js'
import { membersAnswer, membersSchema, objectRoutes } from './objects.js'
import { bodyOf, deletion, get, members, objectBody, post } from './row.js'
import { at, list, object, ref, string } from './schema.js'

const one = '/config/osimage/{osimage}'
const nameOf = (request: ApiRequest) => param(request, 'osimage')
const place = { about: 'OS image {osimage}', at: 'config.osimage.{osimage}' } as const

/** The fields of a kernel change, at least one (rules 2.8). */
const kernel = bodyOf(
  place,
  {
    kernelfile: { type: file, meaning: 'file below /boot of the image' },
    initrdfile: { type: file, meaning: 'file below /boot of the image; built where absent' },
    kernelversion: {
      type: freeText,
      otherSpellings: ['kernver'],
      meaning: 'on its own it selects vmlinuz-<version>'
    }
  },
  (values, about): KernelRequest => {
    const wish = Object.entries(values).filter(([, value]) => value !== null)
    if (wish.length === 0)
      throw badRequest(
        `${about}: one of the fields ${Object.keys(values).join(', ')} is needed`,
        'missing-field'
      )
    return Object.fromEntries(wish)
  }
)

/** OS images, and the work on their files: pack, kernel, clone (rules 2.8). */
export function osimageRoutes(parts: Parts): ApiRoute[] {
  const { images } = parts
  return [
    ...objectRoutes(parts, 'osimage', {
      columns: ['name', 'distribution', 'kernelversion', 'imagefile', 'comment'],
      minimal: true,
      members: true,
      cloned: 'own-route',
      save: (...args) => images.save(...args),
      remove: (...args) => images.remove(...args)
    }),
    post('/config/osimage', 'user', {
      answers: [],
      refuses: [400],
      summary: 'Not supported: an image is posted to its own path',
      handler: () => {
        throw badRequest('an OS image is posted to /config/osimage/{osimage}', 'invalid-body')
      }
    }),
    get(`${one}/_pack`, 'user', {
      changes: true,
      answers: [200, 204],
      summary: 'Pack an OS image; with Prefer: respond-async answered at once',
      output: acknowledgement,
      handler: async request =>
        answerWhenDone(request, await images.pack(nameOf(request), actorOf(request)), 204)
    }),
    post(`${one}/kernel`, 'user', {
      answers: [200, 204],
      summary:
        'Set the kernel of an OS image to another one in its directory, and pack it; ' +
        'Prefer: respond-async as for _pack',
      body: kernel,
      output: acknowledgement,
      handler: async (request, wish) =>
        answerWhenDone(request, await images.kernel(nameOf(request), wish, actorOf(request)), 204)
    }),
    post(`${one}/_clone`, 'user', {
      answers: [200, 201],
      summary: 'Clone an OS image and its directory as newosimage; Prefer: respond-async as for _pack',
      body: objectBody('osimage'),
      handler: async (request, given) => {
        const job = await images.clone(nameOf(request), given, actorOf(request))
        return answerWhenDone(request, job, 201, `OS image ${nameOf(request)} cloned to ${given.newName}`)
      }
    })
  ]
}

/** The body of an import and of an update. */
const sourceOf = (required: boolean) =>
  bodyOf(
    place,
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
const target = bodyOf(place, {
  target: { type: freeText, required: true, meaning: 'docker://REGISTRY/NAME:TAG' },
  tag: { type: objectName, meaning: 'tag of the OS image; absent: what is packed now' }
})

/** OS images that are made of container images, and become some (rules 9.16, 9.17). */
export function osimageSourceRoutes({ images }: Parts): ApiRoute[] {
  return [
    post(`${one}/_import`, 'user', {
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
    post(`${one}/_update`, 'user', {
      answers: [200, 204],
      summary:
        'Fetch the container image of an OS image anew if it has changed, or another one; ' +
        'Prefer: respond-async as for _pack',
      body: sourceOf(false),
      output: acknowledgement,
      handler: async (request, { source }) =>
        answerWhenDone(request, await images.update(nameOf(request), source, actorOf(request)), 204)
    }),
    post(`${one}/_push`, 'user', {
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

const tagBody = bodyOf(place, { tag: { type: objectName, required: true, meaning: 'tag' } })
const listing: Listing = { title: 'tag', place: 'config.osimagetag.{tag}', item: ref('osimagetag') }
const tags = at(listing.place, listing.item)

/** The tags of OS images (rules 1.2, 3.10). */
export function osimagetagRoutes({ model }: Parts): ApiRoute[] {
  const tagged = function* (image: string) {
    return yield* filterInSteps(yield* findNodesUsing(model.view, 'osimage', image), name => {
      const node = model.view.get('node', name)
      return node !== undefined && model.effective(node).settings.osimagetag !== defaultTag
    })
  }
  const imageOf = (request: ApiRequest) => model.get('osimage', nameOf(request))
  return [
    post(`${one}/tag`, 'user', {
      answers: [204],
      summary: "Create a tag, or move it to the image's present files",
      body: tagBody,
      handler: async (request, { tag }) => {
        const name = nameOf(request)
        await model.change(actorOf(request), tx => setTag(tx, model.get('osimage', name, tx), tag))
        return { status: 204 }
      }
    }),
    get('/config/osimagetag', 'minimal', {
      summary: 'All tags',
      query: listQuery,
      output: tags,
      handler: request => shown(allTags(model.view), request)
    }),
    get('/config/osimagetag/{osimage}', 'minimal', {
      summary: 'The tags of an image',
      query: listQuery,
      output: tags,
      handler: request => {
        const list = tagsOf(model.view, imageOf(request).name).map(doc => [doc.tag, doc] as const)
        return shown(list, request)
      }
    }),
    ...members('/config/osimagetag/{osimage}', 'user', {
      summary: 'The nodes of an image whose effective tag is not default',
      query: listQuery,
      output: membersSchema('osimagetag'),
      handler: request => {
        const { name } = imageOf(request)
        return membersAnswer(request, 'osimagetag', tagged(name))
      }
    }),
    ...deletion(`${one}/osimagetag/{tagname}`, 'user', {
      summary: 'Delete a tag that nothing uses',
      handler: async request => {
        const { name } = imageOf(request)
        await model.change(actorOf(request), tx => removeTag(tx, name, param(request, 'tagname')))
        return { status: 204 }
      }
    })
  ]
}

/** Tags by key; without a token their names only (rules 5.3). */
function shown(tags: readonly (readonly [string, OsimagetagDoc])[], request: ApiRequest) {
  const entries = tags.map(([key, doc]) => {
    const { tag, osimage, kernelfile = null, initrdfile = null, imagefile = null, kerneloptions } = doc
    const files = { kernelfile, initrdfile, imagefile, ...(kerneloptions ? { kerneloptions } : {}) }
    const values = request.caller.kind === 'anonymous' ? { name: tag } : { name: tag, osimage, ...files }
    return { name: key, values: () => values }
  })
  return listed(request, listing, entries)
}

/** The packs of an image in use, with their nodes (rules 6.8). */
export function runningRoutes({ model, boots }: Parts): ApiRoute[] {
  return [
    get(`${one}/_running`, 'user', {
      summary: 'How many nodes run each pack of the OS image',
      output: at(
        'config.osimage.{osimage}',
        object({
          running: list(
            object({
              pack: string(),
              sha256: string(),
              nodes: { type: 'integer' },
              current: { type: 'boolean', description: 'the pack that the image names now' }
            })
          )
        })
      ),
      handler: request => {
        const { name } = model.get('osimage', nameOf(request))
        return ok(config('osimage', { [name]: { running: runningPacks(model, boots, name) } }))
      }
    })
  ]
}
