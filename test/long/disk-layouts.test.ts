import { rm } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import type { Firmware, Machine } from '../support/virtual-machine.js'
import { reported } from './debian-image.js'
import { type DiskNode, type InstalledDisks, installedDisks } from './installed-disks.js'

// Each disk layout that comes with svcd (docs/disk-layouts.md), with each firmware, and two that hold the other
// kinds of tables, arrays and file systems: a real Debian is installed onto empty disks, then again over what
// it has left, and boots from its disks; a RAID also from each of them alone. What is kept stays the same to the
// byte, in whatever order the machine has its disks.
// SVCD_LAYOUTS=raid1-lvm/uefi,… runs these alone.

type Disks = Pick<Machine, 'disk' | 'moreDisks' | 'nvmeDisks'>

/** What a layout is proved by. */
interface Proof {
  readonly disks: number
  readonly nvme?: number
  /** Its root, as findmnt has it. */
  readonly root: RegExp
  /** Lines of the report. */
  readonly reports?: Readonly<Record<string, RegExp>>
}

const boot = { name: 'firmware', use: 'firmware', size: '512M' }
const on = (name: string, count: number, fields: object) => ({
  ...{ name, count, partitions: [{ name, size: 'rest', mount: `/${name}`, ...fields }] }
})

/** The kinds that no shipped layout has. */
const otherKinds: Readonly<Record<string, object>> = {
  'every-kind': {
    disks: [
      { name: 'system', partitions: [boot, { name: 'root', size: 'rest', format: 'ext4', mount: '/' }] },
      on('five', 3, { raid: 5, format: 'ext4' }),
      on('six', 4, { raid: 6, format: 'xfs' }),
      on('ten', 4, { raid: 10, format: 'btrfs' }),
      on('vault', 1, { format: 'ext4', secret: 'vault' })
    ]
  },
  'msdos-btrfs': {
    disks: [
      {
        ...{ name: 'system', table: 'msdos' },
        partitions: [
          { name: 'swap', size: '10%', format: 'swap' },
          { name: 'root', size: 'rest', format: 'btrfs', mount: '/' }
        ]
      }
    ]
  }
}
const layouts: Readonly<Record<string, object>> = { ...shippedLayouts, ...otherKinds }

const proofs: Readonly<Record<string, Proof>> = {
  'whole-disk': { disks: 1, root: /^ext4 +\/dev\/vda2/ },
  raid1: { disks: 2, root: /^ext4 +\/dev\/md/, reports: { array: /\[UU\]/ } },
  'raid1-lvm': {
    ...{ disks: 2, root: /^ext4 +\/dev\/mapper\/system-root/ },
    reports: { array: /\[UU\]/, swap: /\/dev\/dm-/ }
  },
  'second-kept': { disks: 2, root: /^ext4 +\/dev\/vd.2/, reports: { data: /^[0-9a-f]{64}/ } },
  'scratch-nvme': {
    ...{ disks: 1, nvme: 2, root: /^ext4 +\/dev\/vda2/ },
    reports: { scratch: /^xfs +\/dev\/md\d+/ }
  },
  'every-kind': {
    ...{ disks: 13, root: /^ext4 +\/dev\/vda2/ },
    reports: {
      levels: /^raid10 raid5 raid6$/,
      five: /^ext4 +\/dev\/md/,
      six: /^xfs +\/dev\/md/,
      ten: /^btrfs +\/dev\/md/,
      vault: /^ext4 +\/dev\/mapper\/\S+/,
      locked: /^crypto_LUKS$/
    }
  },
  'msdos-btrfs': {
    ...{ disks: 1, root: /^btrfs +\/dev\/vda2/ },
    reports: { table: /^dos$/, swap: /\/dev\/vda1/ }
  }
}

/** A file on the kept disk is made once; its checksum tells whether it is still the same. */
const more = `
echo "REPORT array $(grep -o '\\[[U_]*\\]' /proc/mdstat)"
echo "REPORT swap $(tail -n +2 /proc/swaps)"
echo "REPORT scratch $(findmnt -n -o FSTYPE,SOURCE,OPTIONS /scratch)"
echo "REPORT levels $(grep '^md' /proc/mdstat | grep -o 'raid[0-9]*' | sort | xargs)"
for name in five six ten vault; do
  echo "REPORT $name $(findmnt -n -o FSTYPE,SOURCE "/$name")"
done
echo "REPORT locked $(lsblk -n -o FSTYPE | grep crypto)"
echo "REPORT table $(lsblk -n -d -o PTTYPE /dev/vda)"
if mountpoint -q /data; then
  [ -e /data/proof ] || head -c 1000000 /dev/urandom > /data/proof
  sync
  echo "REPORT data $(sha256sum < /data/proof) $(findmnt -n -o SOURCE /data)"
fi
`

const firmwares: readonly Firmware[] = ['bios', 'uefi']
const wanted = process.env.SVCD_LAYOUTS?.split(',')
const cases = Object.keys(layouts)
  .flatMap(layout => firmwares.map(firmware => ({ layout, firmware })))
  .map(({ layout, firmware }, i) => ({
    ...{ layout, firmware, name: `node${100 + i}` },
    ...{ mac: `52:54:00:14:07:${10 + i}`, ipaddress: `10.141.0.${20 + i}` }
  }))
  // A machine with UEFI starts from no msdos table.
  .filter(({ layout, firmware }) => layout !== 'msdos-btrfs' || firmware === 'bios')
  .filter(({ layout, firmware }) => !wanted || wanted.includes(`${layout}/${firmware}`))

t.setTimeout(12 * 3_600_000)

async function prove(t: Test, site: InstalledDisks, node: DiskNode, layout: string): Promise<void> {
  const { disks, nvme = 0, root, reports = {} } = proofs[layout] as Proof
  const make = (kind: string, count: number) =>
    Promise.all(
      Array.from({ length: count }, (_, i) => site.disk(`${kind}${i}`, i === 0 || disks < 3 ? 6 : 1))
    )
  const [[first = '', ...others], nvmeDisks] = [await make('disk', disks), await make('nvme', nvme)]
  const boot = async (t: Test, machine: Disks, rules = reports) => {
    const { console } = await site.boot(t, node, { ...machine, nvmeDisks })
    t.match(reported(console, 'root'), root, 'its root')
    for (const [word, expected] of Object.entries(rules)) t.match(reported(console, word), expected, word)
    return console
  }
  const both: Disks = { disk: first, moreDisks: others }
  const kept = layout === 'second-kept'
  // Nothing depends on the order in which the kernel finds them.
  const turned: Disks = kept ? { disk: others[0] as string, moreDisks: [first] } : both
  await site.create(node, { disklayout: layout })
  const content = Buffer.from('a key of a test').toString('base64')
  const secret = { name: 'vault', path: '/etc/vault.key', content }
  const { status } = await site.controller.request('POST', `/config/secrets/node/${node.name}`, [secret])
  t.equal(status, 201)
  let data: string | undefined
  for (const [what, machine] of [
    ['empty disks', both],
    ['the same disks again', turned]
  ] as const)
    await t.test(`installed onto ${what}`, async t => {
      const console = await boot(t, machine)
      t.equal((await site.controller.monitor(node.name)).state, 'installer.completed')
      const sum = reported(console, 'data')?.split(' ')[0]
      if (data !== undefined) t.equal(sum, data, 'the kept file is the same')
      data = sum
    })
  await site.leaveNetwork(t, node.name)
  await t.test('booted from its disks', async t => {
    const console = await boot(t, both)
    t.notMatch(console, /svc: step/, 'nothing was installed')
    // Until then it is mounted as the installation has mounted it.
    if (nvme > 0) t.match(reported(console, 'scratch'), 'noatime', 'the options of /etc/fstab')
    if (kept) t.equal(reported(console, 'data')?.split(' ')[0], data, 'the kept file is the same')
  })
  if (layout.startsWith('raid1'))
    for (const [i, disk] of [first, ...others].entries())
      await t.test(`booted from disk ${i + 1} alone`, t => boot(t, { disk }, { array: /_/ }))
  for (const file of [first, ...others, ...nvmeDisks]) await rm(file)
}

t.test('disk layouts', async t => {
  t.strictSame(Object.keys(proofs), Object.keys(layouts), 'each one is proved')
  const site = await installedDisks(t, cases, more)
  for (const layout of new Set(cases.map(({ layout }) => layout)))
    await site.controller.create('disklayout', layout, { ...layouts[layout] })
  for (const node of cases)
    await t.test(`${node.layout}, ${node.firmware}`, t => prove(t, site, node, node.layout))
})
