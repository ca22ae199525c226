import { type DataOf, flag, integer, maps, text, texts } from '../base/variables.js'
import {
  contentsOf,
  type DiskDoc,
  type DisklayoutDoc,
  leastMembers,
  mebibytes,
  type PartitionDoc,
  partitionsOf
} from '../model/types/disklayout.js'

const content = {
  name: text('its name'),
  size: text('MiB, a part such as 10%, or rest'),
  format: text("its file system, or swap; '' without one"),
  mount: text("where it is mounted; '' without"),
  options: text("mount options, '' for the defaults"),
  label: text("label of the file system, '' without one"),
  secret: text("the secret that encrypts it, '' without one"),
  tpm: flag("whether the node's TPM opens it"),
  volumegroup: text("the volume group that it is in, or that gets it; '' without one")
} as const

const partition = {
  title: 'partition',
  meaning: 'A partition of each of the disks.',
  variables: {
    ...content,
    use: text<'' | 'firmware' | 'efi' | 'bios_grub'>("what the boot loader has it for; '' for others"),
    raid: text("level of the array of the disks' partitions; '' without one"),
    keep: flag('whether it stays, once it was made')
  }
} as const

const volume = { title: 'volume', meaning: 'A logical volume.', variables: content } as const

const disk = {
  title: 'disks of a layout',
  meaning: 'Disks that are chosen together and get the same partitions.',
  variables: {
    name: text('what they are for'),
    count: integer('how many at most'),
    least: integer('how many at least'),
    type: text("ssd, hdd or nvme; '' for any"),
    min: integer('MiB that a disk has at least, which the partitions need'),
    max: integer('MiB that a disk has at most; 0 for any'),
    by_id: text("a pattern of names in /dev/disk/by-id; '' for any"),
    order: text('which of several that fit: first, last, smallest, largest'),
    table: text('gpt or msdos'),
    keep: flag('whether the disks stay as they are'),
    labels: texts('the labels of file systems on it that are kept'),
    partitions: maps(partition, 'its partitions')
  }
} as const

/** Variables of the templates of a disk layout, as partscript and for a kickstart. */
export const layoutVariables = {
  layout: text('name of the disk layout'),
  disks: maps(disk, 'the disks'),
  volumes: maps(volume, 'logical volumes, group by group'),
  programs: texts('programs that the script calls'),
  kernel: texts('what the kernel has to know: raid1, dm_mod, ext4')
} as const

type LayoutData = DataOf<typeof layoutVariables>

/** MiB that svcd assumes for a file system that gets the rest, so that there is one. */
const leastRest = 320
/** MiB before and behind the partitions, and for the metadata of an array. */
const tableMib = 2
const arrayMib = 130
const efiMib = 512

/** Number of disks that a part of a layout takes at most; "all" is a number that no machine has. */
const most = ({ count = 1 }: DiskDoc) => (count === 'all' ? 99 : count)

/** Number of disks that a part of a layout needs. */
export function leastDisks(disk: DiskDoc): number {
  const { count = 1, keep = false, partitions = [] } = disk
  if (count !== 'all') return count
  return keep && partitions.length === 0 ? 0 : Math.max(...partitions.map(one => leastMembers(one.raid)), 1)
}

/** Returns MiB that sizes need together; `rest` is what the last one needs. */
function needed(sizes: readonly (number | string)[], rest: number): number {
  let [mib, percent] = [0, 0]
  for (const size of sizes)
    if (typeof size === 'number') mib += size
    else if (size === 'rest') mib += rest
    else percent += Number.parseInt(size, 10)
  return percent >= 100 ? mib : Math.ceil(mib / (1 - percent / 100))
}

const sizeOf = ({ use, size }: PartitionDoc): number | string =>
  mebibytes(size) ?? (use === 'bios_grub' ? 1 : use === undefined ? (size ?? 'rest') : efiMib)

/** Returns MiB that each disk needs for the group that this partition is in, if nothing else is in it. */
function groupNeeds(disk: DiskDoc, one: PartitionDoc, layout: DisklayoutDoc): number {
  const group = layout.volumegroups?.find(({ name }) => name === one.volumegroup)
  const feeding = partitionsOf(layout).filter(({ volumegroup }) => volumegroup === group?.name)
  if (!group || feeding.length > 1) return leastRest
  const sizes = (group.volumes ?? []).map(({ size }) => mebibytes(size) ?? size)
  const all = needed(sizes, leastRest) + 8
  const members = leastDisks(disk)
  const carrying = { 0: members, 1: 1, 5: members - 1, 6: members - 2, 10: members / 2 }[one.raid ?? 0]
  return Math.ceil(all / Math.max(1, carrying))
}

/** Returns MiB that each of these disks needs for its partitions, at least `min`. */
export function leastMib(disk: DiskDoc, layout: DisklayoutDoc): number {
  const { partitions = [], min } = disk
  if (partitions.length === 0) return mebibytes(min) ?? 0
  const arrays = partitions.filter(({ raid }) => raid !== undefined).length * arrayMib
  const last = partitions.at(-1)
  const rest = last ? groupNeeds(disk, last, layout) : 0
  return Math.max(mebibytes(min) ?? 0, needed(partitions.map(sizeOf), rest) + arrays + tableMib)
}

const contentOf = (one: Omit<PartitionDoc, 'use' | 'raid'>) => ({
  name: one.name,
  size: String(mebibytes(one.size) ?? one.size ?? 'rest'),
  format: one.format ?? '',
  mount: one.mount ?? '',
  options: one.options ?? '',
  label: one.label ?? '',
  secret: one.secret ?? '',
  tpm: one.tpm ?? false,
  volumegroup: one.volumegroup ?? ''
})

const once = (words: readonly string[]) => [...new Set(words)]

/** Returns the names of the secrets that a layout needs; none without one. */
export const layoutSecrets = (layout: DisklayoutDoc | undefined): string[] =>
  once(layout ? contentsOf(layout).flatMap(({ secret }) => secret ?? []) : [])

/** Returns the names of the secrets that are recovery keys, which no node gets; none without a layout. */
export const sealedSecrets = (layout: DisklayoutDoc | undefined): string[] =>
  once(layout ? contentsOf(layout).flatMap(({ secret, tpm }) => (tpm ? (secret ?? []) : [])) : [])

/** Returns the input of the templates for a layout; the same for all nodes that have it. */
export function layoutData(layout: DisklayoutDoc): LayoutData {
  const { disks = [], volumegroups = [] } = layout
  const volumes = volumegroups.flatMap(({ name, volumes = [] }) =>
    volumes.map(one => contentOf({ ...one, volumegroup: name }))
  )
  const formats = contentsOf(layout).flatMap(({ format }) => format ?? [])
  const arrays = disks.filter(({ count = 1 }) => count !== 1).flatMap(({ partitions = [] }) => partitions)
  const levels = arrays.flatMap(({ raid }) => (raid === undefined ? [] : `raid${raid}`))
  const isEncrypted = layoutSecrets(layout).length > 0
  const keeps = disks.some(({ keep, partitions = [] }) => keep || partitions.some(one => one.keep))
  return {
    layout: layout.name,
    disks: disks.map(disk => {
      const { name, type = '', max, by_id = '', order = 'first', table = 'gpt', keep = false } = disk
      const own = disk.partitions ?? []
      return {
        ...{ name, count: most(disk), least: leastDisks(disk), type, min: leastMib(disk, layout) },
        ...{ max: mebibytes(max) ?? 0, by_id, order, table, keep },
        labels: own.filter(one => keep || one.keep).flatMap(({ label }) => label ?? []),
        partitions: own.map(one => ({
          ...contentOf(one.use === undefined ? one : { ...one, size: `${sizeOf(one)}M` }),
          use: one.use ?? '',
          raid: one.raid === undefined ? '' : String(one.raid),
          keep: one.keep ?? false
        }))
      }
    }),
    volumes,
    programs: once([
      'sfdisk',
      ...(levels.length > 0 ? ['mdadm'] : []),
      ...(volumes.length > 0 ? ['lvm'] : []),
      ...(isEncrypted ? ['cryptsetup'] : []),
      ...(keeps ? ['blkid'] : []),
      ...formats.map(format => (format === 'swap' ? 'mkswap' : `mkfs.${format}`))
    ]),
    kernel: once([
      ...levels,
      ...(volumes.length > 0 || isEncrypted ? ['dm_mod'] : []),
      ...(isEncrypted ? ['aes-xts'] : []),
      ...formats.filter(format => format !== 'swap')
    ])
  }
}
