import { badRequest } from '../../base/errors.js'
import {
  boolean,
  comment,
  matching,
  objectName,
  oneNumberOf,
  oneOf,
  type Stored,
  type Table,
  valueType
} from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { listOf } from '../table.js'

const name = matching(
  '1 to 32 letters, digits, hyphens and underscores that begin with a letter',
  /^[A-Za-z][A-Za-z0-9_-]{0,31}$/
)
const diskSize = matching('a size with a unit, such as 512M, 100G or 1.5T', /^\d{1,6}(?:\.\d{1,3})?[MGT]$/)
const size = matching(
  'a size such as 512M, 100G or 1.5T, a part such as 10%, or rest',
  /^(?:\d{1,6}(?:\.\d{1,3})?[MGT]|[1-9]\d?%|rest)$/
)
const byId = matching(
  'the name of a link in /dev/disk/by-id; * stands for any characters, ? for one',
  /^[A-Za-z0-9_.:+@=*?-]{1,200}$/
)
const label = matching('1 to 16 letters, digits, dots, hyphens and underscores', /^[A-Za-z0-9_.-]{1,16}$/)
const mountPoint = matching(
  'an absolute path of letters, digits and ._- without .., // and a / at its end',
  /^\/(?:(?:(?!\.\.?(?:\/|$))[A-Za-z0-9_.-]{1,100}\/){0,15}(?!\.\.?$)[A-Za-z0-9_.-]{1,100})?$/
)
const mountOptions = matching('mount options with commas between them', /^[A-Za-z0-9_.:=+@/,-]{1,200}$/)
/** A number of disks, or all that fit. */
const diskCount = valueType<number | 'all'>('a number from 1 to 32, or "all"', 'integer', value => {
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value
  if (number === 'all') return number
  const fits = typeof number === 'number' && Number.isInteger(number) && number >= 1 && number <= 32
  return fits ? number : undefined
})

/** The fields of whatever holds a file system. */
const contentFields = [
  { name: 'format', type: oneOf('ext4', 'xfs', 'btrfs', 'vfat', 'swap'), meaning: 'file system, or swap' },
  { name: 'mount', type: mountPoint, meaning: 'where it is mounted' },
  { name: 'options', type: mountOptions, meaning: 'mount options in /etc/fstab' },
  { name: 'label', type: label, meaning: 'label of the file system' },
  { name: 'secret', type: objectName, meaning: 'encrypts it (LUKS) with this secret of node or group' },
  {
    name: 'tpm',
    type: boolean,
    default: false,
    meaning: "the node's TPM opens it; the secret is its recovery key and is not placed on the node"
  }
] as const satisfies Table

const partitionFields = [
  { name: 'name', type: name, required: true, meaning: 'its name' },
  { name: 'use', type: oneOf('firmware', 'efi', 'bios_grub'), meaning: 'what the boot loader has it for' },
  { name: 'size', type: size, meaning: 'such as 512M, 10% or rest, which is the last one' },
  { name: 'raid', type: oneNumberOf(0, 1, 5, 6, 10), meaning: 'level of the array across the disks' },
  { name: 'volumegroup', type: name, meaning: 'the volume group that gets it' },
  ...contentFields,
  { name: 'keep', type: boolean, default: false, meaning: 'stays as it is, once it was made' }
] as const satisfies Table

const partitions = listOf<PartitionDoc>('partition', partitionFields)
const diskFields = [
  { name: 'name', type: name, required: true, meaning: 'what the disks are for' },
  { name: 'count', type: diskCount, default: 1, meaning: 'how many disks, or all that fit' },
  { name: 'type', type: oneOf('ssd', 'hdd', 'nvme'), meaning: 'kind of disk; an nvme is no ssd here' },
  { name: 'min', type: diskSize, meaning: 'least size of a disk' },
  { name: 'max', type: diskSize, meaning: 'largest size of a disk' },
  { name: 'by_id', type: byId, meaning: 'a name in /dev/disk/by-id' },
  {
    name: 'order',
    type: oneOf('first', 'last', 'smallest', 'largest'),
    default: 'first',
    meaning: 'which of several that fit'
  },
  { name: 'table', type: oneOf('gpt', 'msdos'), default: 'gpt', meaning: 'kind of partition table' },
  { name: 'keep', type: boolean, default: false, meaning: 'stays as it is, once its partitions were made' },
  { name: 'partitions', type: partitions, default: [], meaning: 'what each of the disks gets' }
] as const satisfies Table

const volumeFields = [
  { name: 'name', type: name, required: true, meaning: 'its name' },
  { name: 'size', type: size, required: true, meaning: 'such as 20G, 10% or rest, which is the last one' },
  ...contentFields
] as const satisfies Table

const volumes = listOf<VolumeDoc>('volume', volumeFields)
const groupFields = [
  { name: 'name', type: name, required: true, meaning: 'its name' },
  { name: 'volumes', type: volumes, default: [], meaning: 'logical volumes' }
] as const satisfies Table

const disks = listOf<DiskDoc>('disks', diskFields, 'a list of disks')
const groups = listOf<VolumegroupDoc>('volume group', groupFields)
const fields = [
  { name: 'disks', type: disks, default: [], meaning: 'disks and what they get (docs/disk-layouts.md)' },
  { name: 'volumegroups', type: groups, default: [], meaning: 'volume groups (docs/disk-layouts.md)' },
  comment
] as const satisfies Table

export type PartitionDoc = Stored<typeof partitionFields>
export type VolumeDoc = Stored<typeof volumeFields>
export type DiskDoc = Stored<typeof diskFields>
export type VolumegroupDoc = Stored<typeof groupFields>
export type DisklayoutDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface ObjectShapes {
    disklayout: DisklayoutDoc
  }
}

/** Returns the partitions of all disks. */
export const partitionsOf = ({ disks = [] }: DisklayoutDoc): PartitionDoc[] =>
  disks.flatMap(({ partitions = [] }) => partitions)

/** Returns all partitions and volumes. */
export const contentsOf = (layout: DisklayoutDoc): PartitionDoc[] => [
  ...partitionsOf(layout),
  ...(layout.volumegroups ?? []).flatMap(({ volumes = [] }) => volumes)
]

/** Returns a size in MiB; undefined for a part and `rest`. */
export function mebibytes(text = ''): number | undefined {
  const [, number, unit] = /^([\d.]+)([MGT])$/.exec(text) ?? []
  return unit === undefined
    ? undefined
    : Math.ceil(Number(number) * { M: 1, G: 1024, T: 1_048_576 }[unit as 'M'])
}

/** Disks that a partition needs at least to make an array of this level. */
export const leastMembers = (raid: PartitionDoc['raid']): number =>
  raid === undefined || raid === 0 ? 1 : { 1: 2, 5: 3, 6: 4, 10: 2 }[raid]

/** Lengths of labels. */
const longestLabel: Readonly<Record<string, number>> = { xfs: 12, vfat: 11, swap: 15 }
/** An installed system opens encrypted file systems too late for these. */
const tooEarly = /^\/(?:$|var$|(?:boot|usr|etc|lib|bin|sbin)(?:\/|$))/
/** GRUB reads /boot, and the initramfs opens no other one than /. */
const tooEarlyForTpm = /^\/(?:boot|usr|etc|lib|bin|sbin)(?:\/|$)/
/** The kernel, the installation and the first programs need these before /etc/fstab is read. */
const neverMounted =
  /^\/(?:etc$|(?:proc|sys|dev|run|svcrun|svctmp|bin|sbin|lib(?:32|64|x32)?|var\/(?:run|lock))(?:\/|$))/
/** LVM makes no group whose name is in /dev. */
const inDev =
  /^(?:block|bus|char|cpu|disk|dri|fd|input|mapper|md|mqueue|net|null|pts|shm|snd|tty|usb|vfio|zero)$/

/** Yields why something that holds a file system cannot be; each sentence follows its name. */
function* contentProblems(one: PartitionDoc | VolumeDoc, keep: boolean): Generator<string> {
  const { format, mount, options, label, secret, tpm = false } = one
  if (mount !== undefined && format === undefined)
    yield 'field "format" is missing: a file system that is mounted needs one, such as ext4'
  if (format === 'swap' && mount !== undefined) yield 'field "mount" is not for swap: take it out'
  if (neverMounted.test(mount ?? ''))
    yield `field "mount": ${mount} cannot be a file system of its own: choose another place, such as /srv`
  if (options !== undefined && mount === undefined) yield 'field "options" is not used without "mount"'
  if (format === undefined && (label ?? secret) !== undefined)
    yield `field "${label === undefined ? 'secret' : 'label'}" needs "format"`
  const most = longestLabel[format ?? ''] ?? 16
  if ((label ?? '').length > most) yield `field "label" is too long: ${format} takes ${most} characters`
  if (tpm && (secret === undefined || format === 'swap'))
    yield 'field "tpm" needs a "secret", which is the recovery key, and is not for swap'
  const early = tpm ? tooEarlyForTpm : tooEarly
  if (secret !== undefined && format !== 'swap' && (mount === undefined || early.test(mount)))
    yield 'field "secret": the system finds its key on "/", so it can only open what it mounts later: ' +
      'put data below /home, /srv, /scratch and the like, or take it out'
  if (keep && (label === undefined || format === undefined || secret !== undefined || format === 'swap'))
    yield 'is kept: it needs a "format" and a "label" to find it by, and is neither swap nor has a "secret"'
}

function* partitionProblems(
  disk: DiskDoc,
  one: PartitionDoc,
  groups: ReadonlySet<string>
): Generator<string> {
  const { use, size, raid, volumegroup, format, mount, keep = false } = one
  const { count = 1, table = 'gpt' } = disk
  const isKept = keep || disk.keep === true
  if (size === undefined && use === undefined) yield 'field "size" is missing: give 100G, 10% or rest'
  if (use !== undefined) {
    const not = (['raid', 'volumegroup', 'format', 'mount', 'label', 'secret', 'tpm', 'keep'] as const).find(
      field => one[field] !== undefined
    )
    if (not) yield `field "${not}" does not go with "use": svcd makes what the boot loader needs`
    if (size !== undefined && mebibytes(size) === undefined) yield `field "size" must be a size such as 512M`
    if (use === 'bios_grub' && table === 'msdos') yield 'field "use": msdos has no bios_grub: take it out'
    if (disk.keep) yield 'field "use": the disk is kept, and cannot hold the boot loader'
    return
  }
  if (volumegroup !== undefined && !groups.has(volumegroup))
    yield `field "volumegroup": there is no volume group ${volumegroup}: add it to "volumegroups"`
  if (volumegroup !== undefined && (format ?? mount) !== undefined)
    yield 'fields "volumegroup" and "format" do not go together: the volumes have file systems'
  if (raid !== undefined && count !== 'all' && count < leastMembers(raid))
    yield `field "raid": level ${raid} needs ${leastMembers(raid)} disks: set "count"`
  if (count !== 1 && raid === undefined && volumegroup === undefined && format !== undefined)
    yield 'is on several disks: it needs a "raid" level or a "volumegroup"'
  if (isKept && (raid ?? volumegroup ?? (count === 1 ? undefined : count)) !== undefined)
    yield 'is kept: that is for a plain file system of one disk, not for "raid", "volumegroup" and "count"'
  yield* contentProblems(one, isKept)
}

function* diskProblems(disk: DiskDoc, groups: ReadonlySet<string>): Generator<string> {
  const { name, partitions = [], keep = false, min, max, table = 'gpt' } = disk
  if ((mebibytes(min) ?? 0) > (mebibytes(max) ?? Number.POSITIVE_INFINITY))
    yield `disks ${name}: field "max" is ${max}, less than "min" ${min}`
  if (partitions.length === 0 && !keep) yield `disks ${name}: field "partitions" is missing`
  if (partitions.length === 0 && keep && (disk.by_id ?? disk.type ?? min ?? max) === undefined)
    yield `disks ${name}: a kept disk without partitions needs "by_id", "type", "min" or "max": ` +
      'the order of disks can change'
  if (partitions.length > (table === 'gpt' ? 64 : 4))
    yield `disks ${name}: ${partitions.length} partitions are too many for ${table}`
  yield* sizeProblems(`disks ${name}`, 'partition', partitions)
  for (const one of partitions)
    for (const why of partitionProblems(disk, one, groups))
      yield `disks ${name}: partition ${one.name}${/^fields? /.test(why) ? ':' : ''} ${why}`
}

function* sizeProblems(
  where: string,
  what: string,
  all: readonly { readonly name: string; readonly size?: string }[]
): Generator<string> {
  const rest = all.findIndex(({ size }) => size === 'rest')
  if (rest >= 0 && rest < all.length - 1)
    yield `${where}: ${what} ${all[rest]?.name}: field "size": only the last ${what} gets the rest`
  const percents = all.map(({ size = '' }) => (size.endsWith('%') ? Number.parseInt(size, 10) : 0))
  const percent = percents.reduce((sum, one) => sum + one, 0)
  if (percent > (all.every(({ size = '' }) => size.endsWith('%')) ? 100 : 99))
    yield `${where}: its ${what}s have ${percent} % in all`
}

/** Yields what is wrong with a layout, one sentence each. */
function* problems(layout: DisklayoutDoc): Generator<string> {
  const { disks = [], volumegroups = [] } = layout
  if (disks.length === 0) yield 'field "disks" is missing: svcctl disklayout add raid1 --shipped makes one'
  if (disks.length > 32 || volumegroups.length > 32) yield 'has more than 32 kinds of disks, or volume groups'
  const groups = new Set(volumegroups.map(({ name }) => name))
  for (const disk of disks) yield* diskProblems(disk, groups)
  for (const { name, volumes = [] } of volumegroups) {
    if (!disks.some(({ partitions = [] }) => partitions.some(one => one.volumegroup === name)))
      yield `volume group ${name}: no partition has it as its "volumegroup"`
    if (inDev.test(name))
      yield `volume group ${name}: field "name": every Linux has a /dev/${name}: choose another name`
    if (volumes.length === 0 || volumes.length > 64)
      yield `volume group ${name}: field "volumes": 1 to 64 volumes are needed`
    yield* sizeProblems(`volume group ${name}`, 'volume', volumes)
    for (const one of volumes)
      for (const why of contentProblems(one, false)) yield `volume group ${name}: volume ${one.name}: ${why}`
  }
  const all = contentsOf(layout)
  const isEfi = ({ use }: PartitionDoc) => use === 'efi' || use === 'firmware'
  const boots = disks.filter(({ partitions = [] }) => partitions.some(isEfi))
  if (boots.length > 1) yield `disks ${boots[1]?.name}: disks ${boots[0]?.name} have the boot loader already`
  if (disks.some(({ partitions = [] }) => partitions.filter(isEfi).length > 1))
    yield `disks ${boots[0]?.name}: two partitions are for the boot loader`
  for (const field of ['mount', 'label', 'name'] as const) {
    const values = all.flatMap(one => one[field] ?? [])
    if (field === 'mount' && boots.length > 0) values.push('/boot/efi')
    const twice = values.find((value, i) => values.indexOf(value) < i)
    if (twice !== undefined) yield `field "${field}": two partitions or volumes have ${twice}`
  }
  const root = all.find(({ mount }) => mount === '/')
  if (root?.tpm && !all.some(({ mount }) => mount === '/boot'))
    yield 'field "tpm": / is sealed, and GRUB cannot read it: add a partition with "mount" /boot'
  const sealed = all.filter(({ tpm }) => tpm).map(({ secret }) => secret)
  const both = all.find(({ secret, tpm }) => secret !== undefined && !tpm && sealed.includes(secret))
  if (both) yield `field "secret": ${both.name} and a sealed one have ${both.secret}: give each its own`
  if (!root) yield 'field "mount": no file system has /'
  if (root?.keep || disks.some(({ keep, partitions = [] }) => keep && root && partitions.includes(root)))
    yield 'field "keep": / cannot be kept: the image is unpacked there'
}

/** A description of the disks of a node: partitions, arrays, volumes, file systems (rules 4.39). */
export const disklayout: ObjectType<DisklayoutDoc> = {
  type: 'disklayout',
  title: 'disk layout',
  fields,
  newName: ['newlayoutname'],
  ...named,
  *checks(_view, doc, title) {
    yield () => {
      for (const why of problems(doc)) throw badRequest(`${title}: ${why}`, 'invalid-field')
    }
  }
}
