import t from 'tap'
import type { Inventory } from '../../lib/inventory/facts.js'
import { changesOf, settled } from '../../lib/inventory/inventories.js'
import { dimms, machine } from './machines.js'

const gib = 2 ** 30
const { disks = [], interfaces = [], pci = [] } = machine()
const [sda = {}, sdb = {}] = disks

/** Returns the sentences on a machine that has become another one. */
const told = (after: Inventory, before: Inventory = {}) => changesOf(machine(before), machine(after))

// rules 6.16
t.test('the texts of a node make no long sentence', async t => {
  const long = 'x'.repeat(256)
  const cards = Array.from({ length: 500 }, (_, i) => ({
    class: '0302',
    vendor: `${i}${long}`,
    device: long
  }))
  const [...sentences] = told({ pci: cards, cpu: { model: long } })
  t.ok(sentences.length > 1)
  t.strictSame(
    sentences.filter(sentence => sentence.length > 301),
    []
  )
})

// rules 6.16
t.test('each change of the hardware is one sentence', async t => {
  const rows: readonly (readonly [after: Inventory, ...sentences: string[]])[] = [
    [{}],
    [{ memory: { total: 250 * gib, slots: dimms(7) } }, '7 of 8 DIMMs, 8 at the last boot: A8 is empty'],
    [{ memory: { slots: dimms(6) } }, '6 of 8 DIMMs, 8 at the last boot: A7, A8 are empty'],
    [{ memory: { total: 218 * gib } }, '218 GiB of memory, 250 GiB at the last boot'],
    [{ memory: { total: 249 * gib } }],
    [
      { cpu: { ...machine().cpu, sockets: 1, cores: 32 } },
      'sockets 1, 2 at the last boot',
      'cores 32, 64 at the last boot'
    ],
    [
      { firmware: { version: '1.1', mode: 'bios' } },
      'firmware 1.1, Maker 1.0 at the last boot',
      'boot bios, uefi at the last boot'
    ],
    [{ system: { ...machine().system, serial: 'S2' } }, 'serial number S2, S1 at the last boot'],
    [{ system: {} }],
    [{ disks: [sda] }, 'disk sdb (ST4000, 4 TB, serial D2) is gone'],
    [
      {
        disks: [
          { ...sda, name: 'sdb' },
          { ...sdb, name: 'sda' }
        ]
      }
    ],
    [
      { disks: [sda, { ...sdb, serial: 'D3' }] },
      'disk sdb (ST4000, 4 TB, serial D3) in the place of sdb (ST4000, 4 TB, serial D2)'
    ],
    [{ disks: [...disks, { name: 'sdc', size: 480e9 }] }, 'disk sdc (480 GB) is new'],
    [
      { disks: [sda, { ...sdb, health: 'offline' }] },
      'disk sdb (ST4000, 4 TB, serial D2) is offline, running at the last boot'
    ],
    [{ interfaces: interfaces.slice(0, 1) }, 'interface eth1 with MAC 52:54:00:00:00:02 is gone'],
    [
      {
        interfaces: interfaces.map(one => ({
          ...one,
          name: `en${one.name}`,
          driver: 'i40e',
          link: true,
          speed: 10
        }))
      }
    ],
    [
      { pci: pci.slice(1).map(card => ({ ...card, address: `1${card.address}` })) },
      'gpus 3 x 10de:20b5, 4 x 10de:20b5 at the last boot'
    ],
    [
      { pci: [...pci, { class: '0207', vendor: '15b3', device: '101b' }] },
      'infiniband 1 x 15b3:101b, none at the last boot'
    ],
    [{ kernel: '6.2.0', tpm: {} }]
  ]
  for (const [after, ...sentences] of rows) t.strictSame(told(after), sentences, JSON.stringify(after))
  t.strictSame(told({ memory: { slots: dimms(8) } }, { memory: { slots: dimms(7) } }), [
    '8 of 8 DIMMs, 7 at the last boot'
  ])
  const other = dimms(8).map((one, i) =>
    i === 0 ? { ...one, size: 16 * gib } : i === 1 ? { ...one, serial: 'X' } : one
  )
  t.strictSame(told({ memory: { slots: other } }), [
    'DIMM A1 has 16 GiB, 32 GiB at the last boot',
    'DIMM A2 was replaced'
  ])
})

t.test('a report of anything is bounded in its sentences', async t => {
  const many = Array.from({ length: 500 }, (_, i) => ({ name: `sd${i}` }))
  const lines = told({ disks: many })
  t.equal(lines.length, 21)
  t.match(lines.at(-1), /^\d+ more changes of its hardware$/)
})

t.test('what an initramfs cannot see is kept from the last boot', async t => {
  const early = machine({
    ...{ source: 'installation', disks: [], interfaces: [], kernel: '6.1.1' },
    firmware: { vendor: 'Maker', version: '1.1', mode: 'uefi' },
    memory: { total: 251 * gib, slots: dimms(7) },
    pci: pci.slice(1).map(({ driver: _, ...card }) => card)
  })
  const { tpm: _, ...report } = early
  const kept = settled(machine(), report)
  t.strictSame(kept, {
    ...machine(),
    firmware: { vendor: 'Maker', version: '1.1', mode: 'uefi', secure_boot: false },
    memory: { total: 250 * gib, slots: dimms(7) },
    pci: pci.slice(1)
  })
  t.strictSame(settled(undefined, report), report)
  t.strictSame(settled({ ...machine(), source: 'installation' }, machine()), machine())
})
