import { fileURLToPath } from 'node:url'
import { layoutData } from '../../lib/disk-layout/data.js'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import type { DisklayoutDoc } from '../../lib/model/types/disklayout.js'
import { Templates } from '../../lib/template/templates.js'

const directory = fileURLToPath(new URL('../../templates', import.meta.url))
const templates = new Templates({ directory })

/** The script of a layout, as the installation or a kickstart runs it. */
export const layoutScript = (layout: DisklayoutDoc, kind: '' | '_kickstart' = ''): string =>
  templates.render(`install/templ_disklayout${kind}.cfg`, { ...layoutData(layout) })

/** A layout that comes with svcd. */
export const shippedLayout = (name: string): DisklayoutDoc => ({ ...shippedLayouts[name], name })

/** A layout with every kind of thing in it. */
export const wholeLayout: DisklayoutDoc = {
  name: 'whole',
  disks: [
    { name: 'ceph', count: 'all', type: 'hdd', min: '1T', keep: true },
    {
      ...{ name: 'data', by_id: 'ata-*', keep: true },
      partitions: [{ name: 'data', size: 'rest', format: 'btrfs', label: 'data', mount: '/data' }]
    },
    {
      ...{ name: 'system', count: 2, type: 'ssd', min: '20G', max: '2T', order: 'smallest' },
      partitions: [
        { name: 'firmware', use: 'firmware' },
        { name: 'boot', size: '1G', raid: 1, format: 'ext4', mount: '/boot' },
        { name: 'lvm', size: 'rest', raid: 1, volumegroup: 'system' }
      ]
    },
    {
      ...{ name: 'home', table: 'msdos', order: 'last' },
      partitions: [
        { name: 'swap', size: '10%', format: 'swap', secret: 'swapkey' },
        {
          name: 'home',
          size: 'rest',
          format: 'xfs',
          mount: '/home',
          options: 'noatime,nofail',
          label: 'home',
          keep: true
        }
      ]
    }
  ],
  volumegroups: [
    {
      name: 'system',
      volumes: [
        { name: 'scratch', size: '10%', format: 'xfs', mount: '/scratch', secret: 'key' },
        { name: 'root', size: 'rest', format: 'ext4', mount: '/' }
      ]
    }
  ]
}
