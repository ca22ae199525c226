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
import { plainKind } from '../stored.js'

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

/**
 * What svcd packed, named by its image file: who names the file finds its checksum here, and the sweep what to
 * remove when nobody does. `osimage` had that name then; `kernel` and `initrd` are the files below the tree's /boot
 * that `kernelfile` and `initrdfile` are copies of; `omitted` is what the packer could not carry.
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
  ...named,
  files: doc => doc
}

const amount = integer(0, Number.MAX_SAFE_INTEGER)

const sha256: Reads<string> = {
  expected: '64 hexadecimal digits',
  read: value => {
    if (typeof value !== 'string' || !/^[0-9a-f]{64}$/.test(value)) throw new ValueError('')
    return value
  }
}

/** A pack is named like its file, and serves that and the kernel and initramfs that were packed with it. */
export const pack = {
  ...plainKind<PackDoc>(
    'pack',
    { osimage: objectName, sha256, bytes: amount, time: amount, packer: oneOf('system', 'builtin') },
    { kernelfile: file, initrdfile: file, kernel: file, initrd: file, omitted: strings }
  ),
  files: (doc: PackDoc) => ({ ...doc, imagefile: doc.name })
}

/** The directory of an image. */
export const tree = plainKind<TreeDoc>(
  'image directory',
  {},
  { at: amount, osimage: objectName, abandoned: boolean }
)
