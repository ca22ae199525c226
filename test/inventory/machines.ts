import type { Inventory } from '../../lib/inventory/facts.js'

const gib = 2 ** 30

/** A machine with eight DIMMs, two disks, two ports and four GPUs. */
export const machine = (more: Inventory = {}): Inventory => ({
  source: 'boot',
  system: { maker: 'Maker', product: 'R740', serial: 'S1' },
  firmware: { vendor: 'Maker', version: '1.0', mode: 'uefi', secure_boot: false },
  cpu: { model: 'CPU', sockets: 2, cores: 64, threads: 128 },
  memory: { total: 250 * gib, slots: dimms(8) },
  disks: [
    { name: 'sda', by_id: ['wwn-1'], size: 960e9, model: 'PM893', serial: 'D1', health: 'running' },
    { name: 'sdb', by_id: ['wwn-2'], size: 4e12, model: 'ST4000', serial: 'D2', health: 'running' }
  ],
  interfaces: [
    { name: 'eth0', mac: '52:54:00:00:00:01', driver: 'ice', speed: 25000, link: true },
    { name: 'eth1', mac: '52:54:00:00:00:02', driver: 'ice', link: false }
  ],
  pci: ['41', '61', '81', 'a1'].map(bus => ({
    ...{ address: `0000:${bus}:00.0`, class: '0302', vendor: '10de', device: '20b5', driver: 'nvidia' }
  })),
  tpm: { version: '2' },
  kernel: '6.1.0',
  ...more
})

/** Eight slots, of which the first ones are filled. */
export const dimms = (filled: number, size = 32 * gib) =>
  Array.from({ length: 8 }, (_, i) =>
    i < filled ? { slot: `A${i + 1}`, size, serial: `M${i + 1}` } : { slot: `A${i + 1}`, size: 0 }
  )
