import type { DisklayoutDoc } from './types/disklayout.js'

type Shipped = Omit<DisklayoutDoc, 'name'>

const firmware = { name: 'firmware', use: 'firmware', size: '512M' } as const
const root = { name: 'root', size: 'rest', format: 'ext4', mount: '/' } as const

/** The disk layouts that svcctl can make (docs/disk-layouts.md), by name. */
export const shippedLayouts: Readonly<Record<string, Shipped>> = {
  'whole-disk': {
    comment: 'the first disk, as a whole',
    disks: [{ name: 'system', partitions: [firmware, root] }]
  },
  raid1: {
    comment: 'two disks as one: the node starts from each of them alone',
    disks: [{ name: 'system', count: 2, partitions: [firmware, { ...root, raid: 1 }] }]
  },
  'raid1-lvm': {
    comment: 'two disks as one, with logical volumes for / and swap',
    disks: [
      {
        name: 'system',
        count: 2,
        partitions: [firmware, { name: 'lvm', size: 'rest', raid: 1, volumegroup: 'system' }]
      }
    ],
    volumegroups: [{ name: 'system', volumes: [{ name: 'swap', size: '2G', format: 'swap' }, root] }]
  },
  'second-kept': {
    comment: 'the system on one disk; the data on another one stay over installations',
    disks: [
      { name: 'system', partitions: [firmware, root] },
      {
        name: 'data',
        keep: true,
        partitions: [
          {
            ...{ name: 'data', size: 'rest', format: 'ext4', label: 'data' },
            ...{ mount: '/data', options: 'defaults,nofail' }
          }
        ]
      }
    ]
  },
  'scratch-nvme': {
    comment: 'scratch across all NVMe disks, made anew by each installation; the system on another disk',
    disks: [
      {
        name: 'scratch',
        count: 'all',
        type: 'nvme',
        partitions: [
          {
            ...{ name: 'scratch', size: 'rest', raid: 0, format: 'xfs', label: 'scratch' },
            ...{ mount: '/scratch', options: 'noatime,nofail' }
          }
        ]
      },
      { name: 'system', partitions: [firmware, root] }
    ]
  }
}
