import { groupInForce, groupOf, members, settingsOf } from '../effective.js'
import {
  boolean,
  comment,
  file,
  freeText,
  integer,
  kernelOptions,
  objectName,
  oneOf,
  path,
  type Reads,
  type Stored,
  strings,
  type Table,
  ValueError
} from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { type AttachedType, plainKind } from '../stored.js'
import { checkUnused, holders, removeTags, renameTags, tagKey } from '../tags.js'
import { abandonTrees, renameTrees } from '../trees.js'

const fields = [
  comment,
  { name: 'distribution', type: objectName, default: 'redhat', meaning: 'kind of Linux in the image' },
  { name: 'path', type: path, meaning: 'image directory' },
  { name: 'kernelfile', type: file, meaning: 'kernel below the files directory' },
  { name: 'initrdfile', type: file, meaning: 'initramfs below the files directory' },
  { name: 'kernelversion', also: ['kernver'], type: freeText, meaning: 'kernel version' },
  { name: 'kernelmodules', also: ['kernmodules'], type: freeText, meaning: 'modules, comma-separated' },
  { name: 'kerneloptions', also: ['kernopts'], type: kernelOptions, meaning: 'kernel options' },
  { name: 'dracutmodules', type: freeText, meaning: 'dracut modules, comma-separated' },
  {
    name: 'grab_exclude',
    also: ['grab_exclude_list'],
    type: strings,
    default: [],
    meaning: 'paths left out of a grab'
  },
  { name: 'grab_filesystems', type: strings, default: [], meaning: 'file systems a grab takes' },
  { name: 'imagefile', also: ['tarball'], type: file, meaning: 'packed image below the files directory' }
] as const satisfies Table

export type OsimageDoc = { readonly name: string } & Stored<typeof fields>

/** A tag pins the files an image had; named `<osimage>:<tag>` (rules 1.2). */
export type OsimagetagDoc = {
  readonly name: string
  readonly osimage: string
  readonly tag: string
  /** Age among the images with a tag of this name: 1 is the first, whose tag is listed under its plain name. */
  readonly order: number
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly imagefile?: string
}

/**
 * What svcd packed, named by its image file: who names the file finds its checksum here, and the sweep what to
 * remove when nobody does. `osimage` had that name then; `kernel` and `initrd` are the files below the tree's /boot
 * that `kernelfile` and `initrdfile` are copies of, `kernelversion` the version that the kernel is of; `omitted` is what
 * the packer could not carry.
 */
export type PackDoc = {
  readonly name: string
  readonly osimage: string
  readonly sha256: string
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly time: number
  readonly packer: 'system' | 'builtin'
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly kernel?: string
  readonly kernelversion?: string
  readonly initrd?: string
  readonly omitted?: readonly string[]
}

/**
 * A directory right below `[image] directory` that belongs to an image (rules 3.12, 9.1). Renaming the image changes
 * `osimage` along.
 */
export type TreeDoc = {
  readonly name: string
  /** svcd made the directory then, milliseconds since 1970; absent: the image had it by its name before a rename. */
  readonly at?: number
  readonly osimage?: string
  /** That image was deleted: the directory is to be removed unless another image is in it. */
  readonly abandoned?: boolean
}

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

/** What nodes install: a kernel, an initramfs and a packed image. */
export const osimage: ObjectType<OsimageDoc> = {
  type: 'osimage',
  title: 'OS image',
  fields,
  newName: ['newosimage'],
  namelessCode: 404,
  // svcd derives it.
  dropped: [{ name: 'torrent', type: freeText, meaning: 'torrent file' }],
  ...named,
  files: doc => doc,

  renamed({ tx }, from, to) {
    renameTags(tx, from, to)
    renameTrees(tx, from, to)
  },
  removed({ tx }, name) {
    removeTags(tx, name)
    abandonTrees(tx, name)
  }
}

const amount = integer(0, Number.MAX_SAFE_INTEGER)

const sha256: Reads<string> = {
  expected: '64 hexadecimal digits',
  read: value => {
    if (typeof value !== 'string' || !/^[0-9a-f]{64}$/.test(value)) throw new ValueError('')
    return value
  }
}

/** A tag of an OS image. */
export const osimagetag: AttachedType<OsimagetagDoc> = {
  ...plainKind<OsimagetagDoc>(
    'OS image tag',
    { osimage: objectName, tag: objectName, order: integer(1, Number.MAX_SAFE_INTEGER) },
    { kernelfile: file, initrdfile: file, imagefile: file }
  ),
  files: doc => doc,

  *checks(view, { name, osimage, tag, order }) {
    if (name !== tagKey(osimage, tag))
      yield `tag ${tag} of OS image ${osimage} belongs in ${tagKey(osimage, tag)}.json`
    if (!view.get('osimage', osimage)) yield `OS image ${osimage} does not exist`
    if (order === 1 && holders(view, tag)[0]?.name !== name)
      yield `another image has the first place ("order": 1) for tag ${tag}`
  },
  /** Nobody may use a tag that goes. */
  checkRemoved(tx, { osimage, tag }, cluster) {
    const users: string[] = []
    for (const user of tx.index.users({ type: 'osimage', name: osimage })) {
      const group = user.type === 'group' ? tx.get('group', user.name) : undefined
      if (group && groupInForce(group, cluster).settings.osimagetag === tag) users.push(`group ${user.name}`)
    }
    for (const name of members(tx, 'osimage', osimage)) {
      const node = tx.get('node', name)
      if (node && settingsOf(node, groupOf(tx, node), cluster).osimagetag === tag) users.push(`node ${name}`)
    }
    checkUnused(`OS image tag ${tag} of ${osimage}`, users)
  }
}

/** A pack is named like its file, and serves that and the kernel and initramfs that were packed with it. */
export const pack = {
  ...plainKind<PackDoc>(
    'pack',
    { osimage: objectName, sha256, bytes: amount, time: amount, packer: oneOf('system', 'builtin') },
    {
      kernelfile: file,
      initrdfile: file,
      kernel: file,
      kernelversion: freeText,
      initrd: file,
      omitted: strings
    }
  ),
  files: (doc: PackDoc) => ({ ...doc, imagefile: doc.name })
}

/** The directory of an image. */
export const tree = plainKind<TreeDoc>(
  'image directory',
  {},
  { at: amount, osimage: objectName, abandoned: boolean }
)
