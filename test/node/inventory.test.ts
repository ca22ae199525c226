import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { inventoryProgram } from '../support/install-script.js'
import { scratch } from '../support/scratch.js'
import { dimm, makeTree, server, structure, type Tree } from './machine-tree.js'

// The program of a node that reports what the machine is made of, on trees of /sys and /proc (rules 6.16).

const program = join(scratch(t), 'inventory')
writeFileSync(program, inventoryProgram())
const shells = [['dash'], ['bash'], ['busybox', 'ash']] as const
/** More than a report has room for, with texts as long as these; each costs a shell some twenty processes. */
const MANY = process.env.SVCD_LONG === undefined ? 50 : 200

/** The report of a machine, as text and parsed. */
function reportOf(test: Test, shell: readonly string[], tree: Tree) {
  const root = scratch(test)
  makeTree(root, tree)
  const [name = '', ...words] = shell
  const text = execFileSync(name, [...words, program, '--root', root, '--print'], { encoding: 'latin1' })
  return { text, report: JSON.parse(text) }
}

const slots = [
  dimm({
    slot: 'A1',
    bank: 'P0 CHANNEL A',
    size: 32767,
    extended: 65536,
    speed: 3200,
    maker: 'Samsung',
    serial: '01',
    part: 'M393  '
  }),
  dimm({ slot: 'A2', bank: 'Not Specified', size: 0x4000, kind: 34, speed: 65535, serial: 'Not Specified' }),
  dimm({ slot: 'A3', size: 0, maker: 'NO DIMM' }),
  dimm({ slot: Buffer.from([0x22, 0x41, 0xff, 0x1b, 0xc3, 0xa4]), size: 65535, kind: 2 }),
  // As of SMBIOS 2.3, without an extended size; in KB.
  structure(17, [0, 16, 255, 255, 64, 0, 64, 0, 0x00, 0x82, 9, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0], 'old')
]

for (const shell of shells) {
  t.test(`a server reports its parts, ${shell.join(' ')}`, async t => {
    const { text, report } = reportOf(t, shell, server(slots))
    t.match(text, /^[\x20-\x7e]*$/, 'ASCII on one line')
    t.strictSame(report, {
      source: 'installation',
      system: {
        maker: 'Some "Maker" \\ Inc.',
        product: 'R 740\txd',
        serial: 'Sä\ufffd1',
        uuid: '4c4c4544-0001'
      },
      firmware: {
        vendor: 'Maker of BIOS',
        version: '1.2.3',
        date: '01/02/2026',
        mode: 'uefi',
        secure_boot: true
      },
      cpu: { model: 'Some(R) CPU @ 2.10GHz', sockets: 2, cores: 2, threads: 4 },
      memory: {
        slots: [
          {
            ...{ slot: 'P0 CHANNEL A A1', size: 64 * 2 ** 30, type: 'DDR4', speed: 3200 },
            ...{ maker: 'Samsung', serial: '01', part: 'M393' }
          },
          { slot: 'A2', size: 16 * 2 ** 30, type: 'DDR5' },
          { slot: 'A3', size: 0 },
          { slot: '"A\ufffd\x1bä' },
          { slot: 'old', size: 512 * 1024, type: 'RAM' }
        ],
        total: 65_536_000 * 1024
      },
      disks: [
        {
          ...{ name: 'nvme0n1', size: 1_000_204_886_016, model: 'KIOXIA', serial: 'N1', rotational: false },
          ...{ transport: 'nvme', health: 'live', by_id: ['nvme-KIOXIA_N1'] }
        },
        {
          ...{
            name: 'sda',
            size: 4_000_787_030_016,
            model: 'ST4000NM0035',
            serial: 'ZC18AB',
            rotational: true
          },
          ...{ transport: 'sata', health: 'running', by_id: ['ata-ST4000_ZC18AB', 'wwn-0x5000'] }
        }
      ],
      interfaces: [
        { name: 'eth0', mac: '52:54:00:00:00:01', driver: 'ice', speed: 25000, link: true },
        { name: 'eth1', mac: '52:54:00:00:00:02', driver: 'ice', link: false }
      ],
      pci: [
        { address: '0000:81:00.0', class: '0302', vendor: '10de', device: '20b5', driver: 'nvidia' },
        { address: '0000:82:00.0', class: '0207', vendor: '15b3', device: '101b' }
      ],
      tpm: { version: '2' },
      kernel: '6.1.0-1-amd64'
    })
  })

  t.test(`a machine without DMI and a container report what they have, ${shell.join(' ')}`, async t => {
    const arm = reportOf(t, shell, {
      'proc/device-tree/model': 'Some Board\0',
      'proc/device-tree/serial-number': '1000\0',
      'proc/cpuinfo': 'processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nprocessor\t: 1\n',
      'proc/meminfo': 'MemTotal:        1024 kB\n'
    })
    t.strictSame(arm.report, {
      source: 'installation',
      system: { product: 'Some Board', serial: '1000' },
      cpu: { model: 'implementer 0x41 part 0xd0c', threads: 2 },
      memory: { total: 1_048_576 },
      ...{ disks: [], interfaces: [], pci: [] }
    })
    const empty = reportOf(t, shell, { empty: '' })
    t.strictSame(empty.report, {
      source: 'installation',
      disks: [],
      interfaces: [],
      pci: []
    })
  })

  t.test(`a damaged table and many disks stay within their bounds, ${shell.join(' ')}`, async t => {
    const disks: Record<string, string> = {}
    for (let i = 0; i < MANY; i++) {
      disks[`sys/block/sd${i}/device/model`] = `${'"'.repeat(500)}\n`
      disks[`sys/block/sd${i}/size`] = '100\n'
    }
    const { text, report } = reportOf(t, shell, {
      ...disks,
      'sys/firmware/dmi/tables/DMI': Buffer.concat([
        dimm({ slot: 'A1', size: 1024 }),
        Buffer.from([17, 0, 0, 0, 17, 255])
      ])
    })
    t.ok(text.length < 65_536, `${text.length} bytes`)
    t.ok(report.disks.length > 20)
    t.ok(report.disks.length < MANY, `${report.disks.length} disks: the others have no room`)
    t.equal(report.disks[0].model.length, 128)
    t.match(report.memory.slots, [{ slot: 'A1', size: 2 ** 30 }])
  })
}
