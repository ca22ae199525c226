import { members as membersOf } from '../model/effective.js'
import { objectName } from '../model/field.js'
import { allTags, removeTag, setTag, tagsOf, untagged } from '../model/tags.js'
import type { OsimagetagDoc } from '../model/types/osimage.js'
import { bodyOf } from './body.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, param } from './context.js'
import { type Listing, listed, listQuery } from './listing.js'
import { membersAnswer, membersSchema } from './objects.js'
import { deletion, get, members, post } from './row.js'
import { at, ref } from './schema.js'

const tagBody = bodyOf(
  { about: 'OS image {osimage}', at: 'config.osimage.{osimage}' },
  { tag: { type: objectName, required: true, meaning: 'tag' } }
)
const listing: Listing = { title: 'tag', place: 'config.osimagetag.{tag}', item: ref('osimagetag') }
const tags = at(listing.place, listing.item)

/** The tags of OS images (rules 1.2, 3.10). */
export function osimagetagRoutes({ model }: Parts): ApiRoute[] {
  const isTagged = (node: string) => model.effective(model.get('node', node)).settings.osimagetag !== untagged
  const imageOf = (request: ApiRequest) => model.get('osimage', param(request, 'osimage'))
  return [
    post('/config/osimage/{osimage}/tag', {
      access: 'user',
      answers: [204],
      summary: "Create a tag, or move it to the image's present files",
      body: tagBody,
      handler: async (request, { tag }) => {
        const name = param(request, 'osimage')
        await model.change(actorOf(request), tx => setTag(tx, model.get('osimage', name, tx), tag))
        return { status: 204 }
      }
    }),
    get('/config/osimagetag', {
      access: 'minimal',
      summary: 'All tags',
      query: listQuery,
      output: tags,
      handler: request => shown(allTags(model.view), request)
    }),
    get('/config/osimagetag/{osimage}', {
      access: 'minimal',
      summary: 'The tags of an image',
      query: listQuery,
      output: tags,
      handler: request => {
        const list = tagsOf(model.view, imageOf(request).name)
        return shown(
          list.map(doc => [doc.tag, doc]),
          request
        )
      }
    }),
    ...members('/config/osimagetag/{osimage}', {
      access: 'user',
      summary: 'The nodes of an image whose effective tag is not default',
      query: listQuery,
      output: membersSchema('osimagetag'),
      handler: request => {
        const { name } = imageOf(request)
        const nodes = membersOf(model.view, 'osimage', name).filter(isTagged)
        return membersAnswer(request, 'osimagetag', nodes)
      }
    }),
    ...deletion('/config/osimage/{osimage}/osimagetag/{tagname}', {
      access: 'user',
      answers: [204],
      summary: 'Delete a tag that nothing uses',
      handler: async request => {
        const { name } = imageOf(request)
        await model.change(actorOf(request), tx => removeTag(tx, name, param(request, 'tagname')))
        return { status: 204 }
      }
    })
  ]
}

/** Tags by their keys; without a token the names alone (rules 5.3). */
function shown(tags: readonly (readonly [string, OsimagetagDoc])[], request: ApiRequest) {
  const entries = tags.map(([key, { tag, osimage, kernelfile, initrdfile, imagefile }]) => {
    const files = {
      kernelfile: kernelfile ?? null,
      initrdfile: initrdfile ?? null,
      imagefile: imagefile ?? null
    }
    const values = request.caller.kind === 'anonymous' ? { name: tag } : { name: tag, osimage, ...files }
    return { name: key, values: () => values }
  })
  return listed(request, listing, entries)
}
