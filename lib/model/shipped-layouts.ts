import type { DisklayoutDoc } from './types/disklayout.js'

const boot = { name: 'firmware', use: 'firmware', size: '512M' } as const
const root = { name: 'root', size: 'rest', format: 'ext4', mount: '/' } as const
const lvm = { name: 'lvm', size: 'rest', raid: 1, volumegroup: 'system' } as const
const swap = { name: 'swap', size: '2G', format: 'swap' } as const
const data = { name: 'data', size: 'rest', format: 'ext4', label: 'data' } as const
const scratch = { name: 'scratch', size: 'rest', raid: 0, format: 'xfs', label: 'scratch' } as const
const system = { name: 'system', partitions: [boot, root] } as const

/** The disk layouts that svcctl can make (docs/disk-layouts.md), by name. */
export const shippedLayouts: Readonly<Record<string, Omit<DisklayoutDoc, 'name'>>> = {
  'whole-disk': { comment: 'the first disk, as a whole', disks: [system] },
  raid1: {
    comment: 'two disks as one: the node starts from each of them alone',
    disks: [{ name: 'system', count: 2, partitions: [boot, { ...root, raid: 1 }] }]
  },
  'raid1-lvm': {
    comment: 'two disks as one, with logical volumes for / and swap',
    disks: [{ name: 'system', count: 2, partitions: [boot, lvm] }],
    volumegroups: [{ name: 'system', volumes: [swap, root] }]
  },
  'second-kept': {
    comment: 'the system on one disk; the data on another one stay over installations',
    disks: [
      system,
      { name: 'data', keep: true, partitions: [{ ...data, mount: '/data', options: 'defaults,nofail' }] }
    ]
  },
  'scratch-nvme': {
    comment: 'scratch across all NVMe disks, made anew by each installation; the system on another disk',
    disks: [
      {
        ...{ name: 'scratch', count: 'all', type: 'nvme' },
        partitions: [{ ...scratch, mount: '/scratch', options: 'noatime,nofail' }]
      },
      system
    ]
  }
}
