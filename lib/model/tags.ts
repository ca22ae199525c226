import { badRequest, notFound } from '../errors.js'
import { compareNames } from '../store/order.js'
import type { Docs } from './docs.js'
import type { Files } from './index.js'
import type { Tx, View } from './stored.js'

type OsimagetagDoc = Docs['osimagetag']

/** The tag that every image has without being tagged: its own current files (rules 1.2). */
export const untagged = 'default'

/** The name a tag of an image is stored under. */
export const tagKey = (osimage: string, tag: string) => `${osimage}:${tag}`

/** The tag of an image with what it pins; undefined where the image does not have it. */
export const findTag = (view: View, osimage: string, tag: string): OsimagetagDoc | undefined =>
  view.get('osimagetag', tagKey(osimage, tag))

/** The files that an image or a tag has, without the rest. */
export const filesOf = ({ kernelfile, initrdfile, imagefile }: Files): Files =>
  Object.fromEntries(
    Object.entries({ kernelfile, initrdfile, imagefile }).filter(([, file]) => file !== undefined)
  )

/** What the index lists the tags of one image under. */
export const imageKey = (osimage: string) => `osimage/${osimage}`
/** What it lists the tags of one name under. */
export const nameKey = (tag: string) => `tag/${tag}`

const docs = (view: View, names: readonly string[]): OsimagetagDoc[] =>
  names.flatMap(name => view.get('osimagetag', name) ?? [])

/** The tags of one image, by tag. */
export const tagsOf = (view: View, osimage: string): OsimagetagDoc[] =>
  docs(view, view.index.listed(imageKey(osimage)).toSorted(compareNames))

/** The images that have a tag of this name, the oldest first. */
export const holders = (view: View, tag: string): OsimagetagDoc[] =>
  docs(view, view.index.listed(nameKey(tag))).sort((a, b) => a.order - b.order)

/** Every tag under the key it is listed by: the first image of a name has the plain one (rules 1.2). */
export function allTags(view: View): [key: string, doc: OsimagetagDoc][] {
  return docs(view, view.names('osimagetag'))
    .sort((a, b) => (a.tag < b.tag ? -1 : a.tag > b.tag ? 1 : a.order - b.order))
    .map(doc => [doc.order === 1 ? doc.tag : tagKey(doc.osimage, doc.tag), doc])
}

/** Creates a tag of an image, or moves it: it pins the files and the kernel options that the image has now. */
export function setTag(tx: Tx, image: Docs['osimage'], tag: string): void {
  if (tag === untagged)
    throw badRequest(`OS image ${image.name}: tag ${untagged} cannot be set`, 'invalid-field')
  const name = tagKey(image.name, tag)
  const order = findTag(tx, image.name, tag)?.order ?? holders(tx, tag).length + 1
  const options = image.kerneloptions ? { kerneloptions: image.kerneloptions } : {}
  tx.put('osimagetag', name, { name, osimage: image.name, tag, order, ...filesOf(image), ...options })
}

/** Removes a tag; the next oldest image with a tag of that name takes its place. */
export function removeTag(tx: Tx, osimage: string, tag: string): void {
  if (tag === untagged)
    throw badRequest(`OS image ${osimage}: tag ${untagged} cannot be deleted`, 'invalid-field')
  if (!findTag(tx, osimage, tag)) throw notFound(`OS image ${osimage} has no tag ${tag}`, 'no-object')
  remove(tx, [{ osimage, tag }])
}

/** The tags of images go with them. */
export function removeTags(tx: Tx, osimages: readonly string[]): void {
  remove(
    tx,
    osimages.flatMap(name => tagsOf(tx, name))
  )
}

function remove(tx: Tx, tags: readonly Pick<OsimagetagDoc, 'osimage' | 'tag'>[]): void {
  for (const { osimage, tag } of tags) tx.remove('osimagetag', tagKey(osimage, tag))
  // Once for each name, since every image after the removed ones moves up.
  for (const tag of new Set(tags.map(({ tag }) => tag)))
    for (const [i, doc] of holders(tx, tag).entries())
      if (doc.order !== i + 1) tx.put('osimagetag', doc.name, { ...doc, order: i + 1 })
}

/** The tags of an image follow its new name. */
export function renameTags(tx: Tx, from: string, to: string): void {
  for (const doc of tagsOf(tx, from)) {
    const name = tagKey(to, doc.tag)
    tx.remove('osimagetag', doc.name)
    tx.put('osimagetag', name, { ...doc, name, osimage: to })
  }
}

/** A tag in force must be one of the image in force (rules 1.2); throws 400, its message begins with `title`. */
export function checkTag(
  view: View,
  { osimage, osimagetag: tag }: { readonly osimage: string | null; readonly osimagetag: string },
  title: string
): void {
  if (tag === untagged) return
  if (osimage === null) throw badRequest(`${title}: OS image tag ${tag} needs an OS image`, 'missing-field')
  if (!findTag(view, osimage, tag))
    throw badRequest(`${title}: OS image ${osimage} has no tag ${tag}`, 'unknown-reference')
}

/** Refuses what takes an object away that others use; names ten of them (rules 2.4). */
export function checkUnused(title: string, users: readonly string[]): void {
  if (users.length === 0) return
  const more = users.length > 10 ? ` and ${users.length - 10} more` : ''
  throw badRequest(`${title} is in use by ${users.length}: ${users.slice(0, 10).join(', ')}${more}`, 'in-use')
}
