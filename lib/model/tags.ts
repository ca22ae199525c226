import { badRequest, notFound } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import { compareNames } from '../store/order.js'
import type { Files } from './cluster-index.js'
import type { Docs } from './docs.js'
import { docsOf, type Tx, type View } from './stored.js'

type OsimagetagDoc = Docs['osimagetag']

/** The implicit tag of every image: its own current files (rules 1.2). */
export const defaultTag = 'default'

/** Returns the name under which a tag is stored. */
export const tagKey = (osimage: string, tag: string) => `${osimage}:${tag}`

/** Returns a tag of an image; undefined if the image has no such tag. */
export const findTag = (view: View, osimage: string, tag: string): OsimagetagDoc | undefined =>
  view.get('osimagetag', tagKey(osimage, tag))

/** Picks the files of an image or a tag. */
export const filesOf = ({ kernelfile, initrdfile, imagefile }: Files): Files =>
  Object.fromEntries(
    Object.entries({ kernelfile, initrdfile, imagefile }).filter(([, file]) => file !== undefined)
  )

/** The index key for the tags of one image. */
export const imageKey = (osimage: string) => `osimage/${osimage}`
/** The index key for the tags with one name. */
export const nameKey = (tag: string) => `tag/${tag}`

const docs = (view: View, names: readonly string[]): OsimagetagDoc[] =>
  names.flatMap(name => view.get('osimagetag', name) ?? [])

/** Returns the tags of one image, sorted. */
export const tagsOf = (view: View, osimage: string): OsimagetagDoc[] =>
  docs(view, view.index.lookup(imageKey(osimage)).toSorted(compareNames))

/** Returns the tags with this name, that of the oldest image first. */
export const tagsNamed = (view: View, tag: string): OsimagetagDoc[] =>
  docs(view, view.index.lookup(nameKey(tag))).sort((a, b) => a.order - b.order)

/** Returns every tag with its key in lists: the first image of a name has the plain key (rules 1.2). */
export function allTags(view: View): [key: string, doc: OsimagetagDoc][] {
  return docsOf(view, 'osimagetag')
    .sort((a, b) => (a.tag < b.tag ? -1 : a.tag > b.tag ? 1 : a.order - b.order))
    .map(doc => [doc.order === 1 ? doc.tag : tagKey(doc.osimage, doc.tag), doc])
}

/** Creates or moves a tag: it pins the present files and kernel options of the image. */
export function setTag(tx: Tx, image: Docs['osimage'], tag: string): void {
  if (tag === defaultTag)
    throw badRequest(`OS image ${image.name}: tag ${defaultTag} cannot be set`, 'invalid-field')
  const name = tagKey(image.name, tag)
  const order = findTag(tx, image.name, tag)?.order ?? tagsNamed(tx, tag).length + 1
  const options = image.kerneloptions ? { kerneloptions: image.kerneloptions } : {}
  tx.put('osimagetag', name, { name, osimage: image.name, tag, order, ...filesOf(image), ...options })
}

/** Removes a tag; its place passes to the next oldest image with a tag of that name. */
export function removeTag(tx: Tx, osimage: string, tag: string): void {
  if (tag === defaultTag)
    throw badRequest(`OS image ${osimage}: tag ${defaultTag} cannot be deleted`, 'invalid-field')
  if (!findTag(tx, osimage, tag)) throw notFound(`OS image ${osimage} has no tag ${tag}`, 'no-object')
  remove(tx, [{ osimage, tag }])
}

/** Removes the tags of images. */
export function removeTags(tx: Tx, osimages: readonly string[]): void {
  const tags = osimages.flatMap(name => tagsOf(tx, name))
  remove(tx, tags)
}

function remove(tx: Tx, tags: readonly Pick<OsimagetagDoc, 'osimage' | 'tag'>[]): void {
  for (const { osimage, tag } of tags) tx.remove('osimagetag', tagKey(osimage, tag))
  // Once for each name, as all later images move up.
  for (const tag of new Set(tags.map(({ tag }) => tag)))
    for (const [i, doc] of tagsNamed(tx, tag).entries())
      if (doc.order !== i + 1) tx.put('osimagetag', doc.name, { ...doc, order: i + 1 })
}

/** Moves the tags of an image to its new name. */
export function renameTags(tx: Tx, from: string, to: string): void {
  for (const doc of tagsOf(tx, from)) {
    const name = tagKey(to, doc.tag)
    tx.remove('osimagetag', doc.name)
    tx.put('osimagetag', name, { ...doc, name, osimage: to })
  }
}

/** Throws 400 if the image in force lacks the tag in force (rules 1.2); `title` begins the message. */
export function checkTag(
  view: View,
  { osimage, osimagetag: tag }: { readonly osimage: string | null; readonly osimagetag: string },
  title: string
): void {
  if (tag === defaultTag) return
  if (osimage === null) throw badRequest(`${title}: OS image tag ${tag} needs an OS image`, 'missing-field')
  if (!findTag(view, osimage, tag))
    throw badRequest(`${title}: OS image ${osimage} has no tag ${tag}`, 'unknown-reference')
}

/** Refuses to remove an object in use; the message names ten of its users (rules 2.4). */
export function checkUnused(title: string, users: readonly string[]): void {
  if (users.length === 0) return
  throw badRequest(`${title} is in use by ${users.length}: ${firstOf(users, 10)}`, 'in-use')
}
