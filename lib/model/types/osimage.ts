import { basename, dirname, join, normalize } from 'node:path'
import { isObject } from '../../base/json.js'
import { effectiveGroup, groupOf, nodesUsing, settingsOf } from '../effective.js'
import {
  boolean,
  comment,
  count,
  file,
  freeText,
  integer,
  kernelOptions,
  noDiskOptions,
  objectName,
  oneOf,
  path,
  type Stored,
  sha256,
  strings,
  type Table,
  valueType
} from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { type AttachedType, docsOf, type Tx, type View } from '../stored.js'
import { checkUnused, imageKey, nameKey, removeTags, renameTags, tagKey, tagsNamed } from '../tags.js'
import { packRoots, rootFormat } from './pack-roots.js'

/** The container image that the directory of an OS image was made of. */
export interface ImageSource {
  /** As it was asked for: `docker://registry.example.com/site/compute:2026.11`. */
  readonly reference: string
  /** `sha256:…` of its manifest for this platform. */
  readonly digest: string
  /** Milliseconds since 1970. */
  readonly time: number
  readonly labels: Readonly<Record<string, string>>
  /** The digests of its layers, the lowest first. */
  readonly layers: readonly string[]
}

/** Maximum layers of an image, labels that are kept, and characters of a label's name and of its text. */
export const MOST_LAYERS = 256
export const MOST_LABELS = 100
export const LONGEST_LABEL = 500
const LONGEST_REFERENCE = 1024

/** Whether a text is a digest of a registry. */
export const isDigest = (value: unknown): value is string =>
  typeof value === 'string' && /^sha256:[0-9a-f]{64}$/.test(value)

const isText = (value: unknown, longest: number) => typeof value === 'string' && value.length <= longest

/** Reads a stored `source`, which only svcd writes, or an import. */
const imageSource = valueType<ImageSource>(
  'an object with reference, digest, time, labels and layers',
  'object',
  value => {
    const { reference, digest, time, labels, layers, ...rest } = isObject(value) ? value : {}
    const isWhole =
      Object.keys(rest).length === 0 &&
      isText(reference, LONGEST_REFERENCE) &&
      isDigest(digest) &&
      Number.isSafeInteger(time) &&
      isObject(labels) &&
      Object.keys(labels).length <= MOST_LABELS &&
      Object.entries(labels).every(pair => pair.every(text => isText(text, LONGEST_LABEL))) &&
      Array.isArray(layers) &&
      layers.length <= MOST_LAYERS &&
      layers.every(isDigest)
    return isWhole ? (value as unknown as ImageSource) : undefined
  }
)

const fields = [
  comment,
  {
    name: 'distribution',
    type: objectName,
    default: 'redhat',
    meaning:
      'kind of Linux in the image, which decides its network files: redhat, rocky, fedora, suse ' +
      'and so on: NetworkManager; ubuntu: netplan; debian and others: what the image has'
  },
  { name: 'path', type: path, meaning: 'image directory' },
  { name: 'kernelfile', type: file, meaning: 'kernel below the files directory' },
  { name: 'initrdfile', type: file, meaning: 'initramfs below the files directory' },
  { name: 'kernelversion', otherSpellings: ['kernver'], type: freeText, meaning: 'kernel version' },
  {
    name: 'kernelmodules',
    otherSpellings: ['kernmodules'],
    type: freeText,
    meaning: 'modules, comma-separated'
  },
  {
    name: 'kerneloptions',
    otherSpellings: ['kernopts'],
    type: kernelOptions,
    limit: noDiskOptions,
    meaning: 'kernel options'
  },
  { name: 'dracutmodules', type: freeText, meaning: 'dracut modules, comma-separated' },
  {
    name: 'grab_exclude',
    otherSpellings: ['grab_exclude_list'],
    type: strings,
    default: [],
    meaning: 'paths that grabs and pushes leave out'
  },
  {
    name: 'grab_filesystems',
    type: strings,
    default: [],
    meaning: 'file systems that grabs and pushes copy'
  },
  {
    name: 'imagefile',
    otherSpellings: ['tarball'],
    type: file,
    meaning: 'packed image below the files directory'
  },
  {
    name: 'osrelease',
    type: freeText,
    default: '',
    meaning: 'release of the distribution, which svcd only keeps'
  },
  {
    name: 'root_format',
    type: rootFormat,
    meaning:
      'form of a root in memory: `tar`, which is unpacked there, or `squashfs` or `erofs`, which stay packed'
  }
] as const satisfies Table

const hidden = [
  {
    name: 'controller',
    type: freeText,
    meaning: 'where its directory is, if controllers share the objects; absent: not known'
  },
  { name: 'source', type: imageSource, meaning: 'the container image that its directory was made of' }
] as const satisfies Table

export type OsimageDoc = { readonly name: string } & Stored<typeof fields> & Stored<typeof hidden>

/** A tag pins the files that an image had; its name is `<osimage>:<tag>` (rules 1.2). */
export const tagFields = [
  { name: 'osimage', type: objectName, required: true, meaning: 'its image' },
  { name: 'tag', type: objectName, required: true, meaning: 'its name' },
  {
    name: 'order',
    type: integer(1, Number.MAX_SAFE_INTEGER),
    required: true,
    meaning:
      'age among the images with a tag of this name: 1 is the first, whose tag is listed under its plain name'
  },
  { name: 'kernelfile', type: file, meaning: 'kernel' },
  { name: 'initrdfile', type: file, meaning: 'initramfs' },
  { name: 'imagefile', type: file, meaning: 'packed image' },
  { name: 'kerneloptions', type: kernelOptions, meaning: 'kernel options; absent: those of the image' }
] as const satisfies Table

export type OsimagetagDoc = { readonly name: string } & Stored<typeof tagFields>

/** A pack, named by its image file: the checksum, and the files that the sweep removes when unreferenced. */
const packFields = [
  { name: 'osimage', type: objectName, required: true, meaning: 'name that its image had then' },
  { name: 'sha256', type: sha256, required: true, meaning: 'checksum of the file' },
  { name: 'bytes', type: count, required: true, meaning: 'size of the file' },
  { name: 'time', type: count, required: true, meaning: 'when, milliseconds since 1970' },
  { name: 'packer', type: oneOf('system', 'builtin'), required: true, meaning: 'which packer made it' },
  { name: 'kernelfile', type: file, meaning: 'kernel below the files directory' },
  { name: 'initrdfile', type: file, meaning: 'initramfs below the files directory' },
  { name: 'kernel', type: file, meaning: 'file below /boot that `kernelfile` is a copy of' },
  { name: 'kernelversion', type: freeText, meaning: 'version of that kernel' },
  {
    name: 'kernelsigner',
    type: freeText,
    meaning: 'who signed that kernel for Secure Boot, none for nobody; absent: not known'
  },
  { name: 'initrd', type: file, meaning: 'file below /boot that `initrdfile` is a copy of' },
  { name: 'omitted', type: strings, meaning: 'what the packer could not carry' },
  {
    name: 'rehearsed',
    type: freeText,
    meaning: 'when and as which node a virtual machine booted it, and how'
  },
  { name: 'roots', type: packRoots, meaning: 'file systems that were made of it' }
] as const satisfies Table

export type PackDoc = { readonly name: string } & Stored<typeof packFields>

/** Returns the prefix of all file names made for a pack, including an earlier kernel of its image. */
export const packFilePrefix = ({ osimage, sha256 }: PackDoc): string => `${osimage}-${sha256.slice(0, 12)}-`

/** Whether svcd made a kernel or initramfs with this pack. */
export const isBootFileOf = (pack: PackDoc, file = ''): boolean =>
  file === pack.kernelfile || file === pack.initrdfile || file.startsWith(packFilePrefix(pack))

/** Whether svcd made a kernel or initramfs with any pack. */
export const isBootFileOfPacks = (view: View, file: string): boolean =>
  docsOf(view, 'pack').some(pack => isBootFileOf(pack, file))

/** Returns the previous pack of the same image by time; undefined if it is not kept. */
export const previousPack = (view: View, { osimage, time }: PackDoc): PackDoc | undefined =>
  docsOf(view, 'pack')
    .filter(pack => pack.osimage === osimage && pack.time < time)
    .reduce<PackDoc | undefined>((last, pack) => (last && last.time > pack.time ? last : pack), undefined)

/** A directory of an image right below `[image] directory` (rules 3.12, 9.1). `osimage` follows a rename. */
const treeFields = [
  {
    name: 'at',
    type: count,
    meaning:
      'when svcd made it, milliseconds since 1970; absent: the image had it by its name before a rename'
  },
  { name: 'osimage', type: objectName, meaning: 'its image' },
  { name: 'controller', type: freeText, meaning: 'where svcd made it, if controllers share the objects' },
  {
    name: 'abandoned',
    type: boolean,
    meaning: 'the image was deleted: the directory is to be removed unless another image is in it'
  }
] as const satisfies Table

export type TreeDoc = { readonly name: string } & Stored<typeof treeFields>

declare module '../docs.js' {
  interface ObjectShapes {
    osimage: OsimageDoc
  }
  interface AttachedShapes {
    osimagetag: OsimagetagDoc
    pack: PackDoc
    tree: TreeDoc
  }
}

/** A kernel, an initramfs and a packed image, which nodes install. */
export const osimage: ObjectType<OsimageDoc> = {
  type: 'osimage',
  title: 'OS image',
  fields,
  internalFields: hidden,
  shownInternals: ['source'],
  unique: ['controller'],
  newName: ['newosimage'],
  missingNameStatus: 404,
  // Derived by svcd.
  ignoredFields: [{ name: 'torrent', type: freeText, meaning: 'torrent file' }],
  ...named,
  files: doc => doc,
  omittedFields: doc => (['osrelease', 'root_format'] as const).filter(name => !doc[name]),

  renamed({ tx }, from, to) {
    renameTags(tx, from, to)
    renameTrees(tx, from, to)
  },
  removed({ tx }, names) {
    removeTags(tx, names)
    for (const name of names) abandonTrees(tx, name)
  }
}

export const osimagetag: AttachedType<OsimagetagDoc> = {
  title: 'OS image tag',
  fields: tagFields,
  files: doc => doc,
  lookupKeys: doc => [imageKey(doc.osimage), nameKey(doc.tag)],

  *checks(view, { name, osimage, tag, order }) {
    if (name !== tagKey(osimage, tag))
      yield `tag ${tag} of OS image ${osimage} belongs in ${tagKey(osimage, tag)}.json`
    if (!view.get('osimage', osimage)) yield `OS image ${osimage} does not exist`
    if (order === 1 && tagsNamed(view, tag)[0]?.name !== name)
      yield `another image has the first place ("order": 1) for tag ${tag}`
  },
  /** Refuses to remove a tag in use. The message names groups, not the nodes that inherit it from them. */
  checkRemoved(tx, { osimage, tag }, cluster) {
    const users: string[] = []
    const groups = new Set<string>()
    for (const user of tx.index.referrers({ type: 'osimage', name: osimage })) {
      const group = user.type === 'group' ? tx.get('group', user.name) : undefined
      if (group && effectiveGroup(group, cluster).settings.osimagetag === tag) groups.add(user.name)
    }
    for (const name of nodesUsing(tx, 'osimage', osimage)) {
      const node = tx.get('node', name)
      if (node?.osimagetag === undefined && groups.has(node?.group ?? '')) continue
      if (node && settingsOf(node, groupOf(tx, node), cluster).osimagetag === tag) users.push(`node ${name}`)
    }
    checkUnused(`OS image tag ${tag} of ${osimage}`, [...[...groups].map(name => `group ${name}`), ...users])
  }
}

/** A pack, which has its image file, and the kernel and initramfs that were packed with it. */
export const pack: AttachedType<PackDoc> = {
  title: 'pack',
  fields: packFields,
  files: doc => ({ ...doc, imagefile: doc.name, rootfiles: doc.roots?.map(({ file }) => file) ?? [] })
}

export const tree: AttachedType<TreeDoc> = { title: 'image directory', fields: treeFields }

/** Returns the directory of an image: `path`, else its name below `[image] directory` (rules 9.1). */
export const imageDirectoryOf = (directory: string, { name, path }: OsimageDoc): string =>
  // A final slash has no meaning.
  path === undefined ? join(directory, name) : normalize(path).replace(/(?<=.)\/+$/, '')

/** Yields images moved into another image's directory: sharing needs a `path` on both (rules 9.1). */
export function* treeProblems(
  tx: Tx,
  directory: string
): Generator<{ readonly type: 'osimage'; readonly name: string; readonly message: string }> {
  const moved = new Set(movedImages(tx, directory))
  if (moved.size === 0) return
  for (const image of docsOf(tx, 'osimage')) {
    const { name, path } = image
    const tree = path === undefined ? '' : imageDirectoryOf(directory, image)
    const byName = dirname(tree) === directory ? tx.get('osimage', basename(tree)) : undefined
    if (!byName || byName.path !== undefined) continue
    const shares = (name: string, other: string, way: string) => ({
      type: 'osimage' as const,
      name,
      message: `OS image ${name}: the directory ${tree} is that of OS image ${other}: ${way}`
    })
    if (moved.has(byName.name)) yield shares(byName.name, name, 'choose another name, or give field "path"')
    else if (moved.has(name))
      yield shares(name, byName.name, `choose another one, or give OS image ${byName.name} this "path" first`)
  }
}

/** Yields images that are new or whose directory changes, or the way in which it is named. */
function* movedImages(tx: Tx, directory: string): Generator<string> {
  for (const { type, name, before, after } of tx.changes()) {
    if (type !== 'osimage' || !after) continue
    const [was, is] = [before as OsimageDoc | undefined, after as OsimageDoc]
    const isSame =
      was &&
      (was.path === undefined) === (is.path === undefined) &&
      imageDirectoryOf(directory, was) === imageDirectoryOf(directory, is)
    if (!isSame) yield name
  }
}

const treesOf = (view: View, osimage: string): TreeDoc[] =>
  docsOf(view, 'tree').filter(tree => tree.osimage === osimage && !tree.abandoned)

/** Moves the directories of an image to its new name (rules 3.12). */
function renameTrees(tx: Tx, from: string, to: string): void {
  for (const tree of treesOf(tx, from)) tx.put('tree', tree.name, { ...tree, osimage: to })
}

/** Marks directories that svcd made for a deleted image for removal, and forgets the others (rules 3.12). */
function abandonTrees(tx: Tx, osimage: string): void {
  for (const tree of treesOf(tx, osimage))
    if (tree.at === undefined) tx.remove('tree', tree.name)
    else tx.put('tree', tree.name, { ...tree, abandoned: true })
}
