import { badRequest } from '../errors.js'
import type { JsonValue } from '../json.js'
import { objectName } from '../model/field.js'
import { members } from '../model/members.js'
import { readValue } from '../model/request.js'
import type { OsimagetagDoc } from '../model/tables.js'
import { allTags, removeTag, setTag, tagsOf, untagged } from '../model/tags.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, param } from './context.js'
import { config, open } from './envelope.js'
import { objectRoutes } from './objects.js'
import { shapes } from './shapes.js'

const reads = { method: 'GET', effect: 'reads', body: 'ignored' } as const

/** OS images as objects, and their tags (rules 1.2, 1.10). */
export function osimageRoutes(parts: Parts): ApiRoute[] {
  const { model } = parts
  const imageOf = (request: ApiRequest) => model.get('osimage', param(request, 'osimage'))
  const tagEntry = (doc: OsimagetagDoc, { caller }: ApiRequest) =>
    caller.kind === 'anonymous'
      ? { name: doc.tag }
      : {
          name: doc.tag,
          osimage: doc.osimage,
          kernelfile: doc.kernelfile ?? null,
          initrdfile: doc.initrdfile ?? null,
          imagefile: doc.imagefile ?? null
        }
  const tagMap = (tags: readonly (readonly [string, OsimagetagDoc])[], request: ApiRequest) => ({
    status: 200,
    body: config('osimagetag', Object.fromEntries(tags.map(([key, doc]) => [key, tagEntry(doc, request)])))
  })
  const deleteTag = async (request: ApiRequest) => {
    const image = imageOf(request)
    await model.change(actorOf(request), tx => removeTag(tx, image.name, param(request, 'tagname')))
    return { status: 204 }
  }
  return [
    ...objectRoutes(parts, {
      type: 'osimage',
      updated: 204,
      cloned: undefined,
      deleted: 204,
      readable: 'minimal',
      members: true,
      save: (name, given, actor) => parts.images.save(name, given, actor),
      remove: (name, actor) => parts.images.remove(name, actor)
    }),
    {
      method: 'POST',
      path: '/config/osimage',
      effect: 'changes',
      access: 'user',
      body: 'ignored',
      codes: [400, 401, 403],
      summary: 'Not supported: an image is posted to its own path',
      handler: () => {
        throw badRequest('osimage: post to /config/osimage/{osimage}')
      }
    },
    {
      method: 'POST',
      path: '/config/osimage/{osimage}/tag',
      effect: 'changes',
      access: 'user',
      body: 'json',
      codes: [204, 400, 401, 403, 404, 503],
      summary: "Create a tag, or move it to the image's present files",
      input: shapes.tag,
      handler: async request => {
        const name = param(request, 'osimage')
        const tag = readTag(name, open(request.body, 'config', ['osimage', name]))
        await model.change(actorOf(request), tx => setTag(tx, model.get('osimage', name, tx), tag))
        return { status: 204 }
      }
    },
    {
      ...reads,
      path: '/config/osimagetag',
      access: 'minimal',
      codes: [200, 503],
      summary: 'All tags',
      output: shapes.tags,
      handler: request => tagMap(allTags(model.view), request)
    },
    {
      ...reads,
      path: '/config/osimagetag/{osimage}',
      access: 'minimal',
      codes: [200, 404, 503],
      summary: 'The tags of an image',
      output: shapes.tags,
      handler: request => {
        const tags = tagsOf(model.view, imageOf(request).name)
        return tagMap(
          tags.map(doc => [doc.tag, doc]),
          request
        )
      }
    },
    ...['_list', '_member'].map(
      (suffix): ApiRoute => ({
        ...reads,
        path: `/config/osimagetag/{osimage}/${suffix}`,
        access: 'user',
        codes: [200, 401, 404, 503],
        summary: 'The nodes of an image whose effective tag is not default',
        output: shapes.members('osimagetag'),
        handler: request => {
          const { name } = imageOf(request)
          const nodes = members(model.view, 'osimage', name).filter(node => tagOf(parts, node) !== untagged)
          return { status: 200, body: config('osimagetag', { [name]: { members: nodes } }) }
        }
      })
    ),
    ...(['GET', 'POST'] as const).map(
      (method): ApiRoute => ({
        method,
        path: '/config/osimage/{osimage}/osimagetag/{tagname}/_delete',
        effect: 'changes',
        access: 'user',
        body: 'ignored',
        codes: [204, 400, 401, 403, 404, 503],
        summary: 'Delete a tag that nothing uses',
        handler: deleteTag
      })
    )
  ]
}

function tagOf({ model }: Parts, name: string): string {
  const node = model.view.get('node', name)
  const group = node?.group === undefined ? undefined : model.view.get('group', node.group)
  return node?.osimagetag ?? group?.osimagetag ?? untagged
}

function readTag(image: string, inner: JsonValue): string {
  const where = `OS image ${image}: field "tag"`
  if (typeof inner !== 'object' || inner === null || Array.isArray(inner))
    throw badRequest(`OS image ${image}: the body must be an object with "tag"`)
  for (const key of Object.keys(inner))
    if (key !== 'tag' && key !== 'name' && !key.startsWith('_'))
      throw badRequest(`OS image ${image}: there is no field "${key}" here, only "tag"`)
  if (inner.name !== undefined && inner.name !== image)
    throw badRequest(`OS image ${image}: field "name" is not ${image}`)
  const tag = readValue(objectName, inner.tag ?? null, where)
  if (typeof tag !== 'string') throw badRequest(`${where} is missing`)
  return tag
}
