import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The content of a file in a machine's /sys, /proc or /dev; `to` makes it a link. */
export type Tree = Readonly<Record<string, string | Buffer | { readonly to: string }>>

/** Makes a tree below a directory. */
export function makeTree(root: string, tree: Tree): void {
  for (const [path, content] of Object.entries(tree)) {
    const file = join(root, path)
    mkdirSync(dirname(file), { recursive: true })
    if (typeof content === 'string' || Buffer.isBuffer(content)) writeFileSync(file, content)
    else symlinkSync(content.to, file)
  }
}

/** A structure of a DMI table: its type, its bytes behind the header, its texts. */
export function structure(
  type: number,
  bytes: readonly number[],
  ...texts: readonly (string | Buffer)[]
): Buffer {
  const parts = texts.flatMap(text => [Buffer.from(text), Buffer.from([0])])
  const end = texts.length > 0 ? [0] : [0, 0]
  return Buffer.concat([Buffer.from([type, bytes.length + 4, type, 0, ...bytes]), ...parts, Buffer.from(end)])
}

interface Dimm {
  readonly slot: string | Buffer
  readonly bank?: string
  /** The word at 0x0c. */
  readonly size: number
  /** The double word at 0x1c, MB. */
  readonly extended?: number
  readonly kind?: number
  readonly speed?: number
  readonly maker?: string
  readonly serial?: string
  readonly part?: string
}

const word = (value: number, bytes = 2) =>
  Array.from({ length: bytes }, (_, i) => Math.floor(value / 256 ** i) % 256)

/** A memory device (type 17) in the layout of SMBIOS 2.7. */
export function dimm({ slot, bank = '', size, extended = 0, kind = 26, speed = 0, ...rest }: Dimm): Buffer {
  const texts = [slot, bank, rest.maker ?? '', rest.serial ?? '', rest.part ?? '']
  const used = texts.filter(text => text.length > 0)
  const at = (i: number) => ((texts[i]?.length ?? 0) > 0 ? used.indexOf(texts[i] as string) + 1 : 0)
  return structure(
    17,
    [
      ...[0, 16, 255, 255, 72, 0, 64, 0, ...word(size), 9, 0, at(0), at(1), kind, 128, 0, ...word(speed)],
      ...[at(2), at(3), 0, at(4), 2, ...word(extended, 4), ...word(speed)]
    ],
    ...used
  )
}

/** The structure with another handle. */
export const withHandle = (bytes: Buffer, handle: number): Buffer =>
  Buffer.concat([bytes.subarray(0, 2), Buffer.from(word(handle)), bytes.subarray(4)])

/** The table: a BIOS with texts, an array without, the slots, and the end. */
export const dmiTable = (...slots: readonly Buffer[]): Buffer =>
  Buffer.concat([
    structure(0, [1, 2, 0, 0, 3, 0], 'Maker of BIOS', '1.2.3', '01/02/2026'),
    structure(16, [3, 3, 3, 0, 0, 0, 0, 254, 255, slots.length, 0]),
    ...slots,
    structure(127, [])
  ])

const dmi = 'sys/class/dmi/id'

/** A server with two sockets, four DIMM slots, disks of each kind, cards, and a TPM. */
export function server(slots: readonly Buffer[]): Tree {
  const cpu = (n: number, core: string, socket: string): Tree => ({
    [`sys/devices/system/cpu/cpu${n}/topology/thread_siblings_list`]: `${core}\n`,
    [`sys/devices/system/cpu/cpu${n}/topology/core_siblings_list`]: `${socket}\n`
  })
  const pci = (address: string, kind: string, vendor: string, device: string, driver?: string): Tree => ({
    [`sys/bus/pci/devices/${address}/class`]: `${kind}\n`,
    [`sys/bus/pci/devices/${address}/vendor`]: `${vendor}\n`,
    [`sys/bus/pci/devices/${address}/device`]: `${device}\n`,
    ...(driver ? { [`sys/bus/pci/devices/${address}/driver`]: { to: `../../drivers/${driver}` } } : {})
  })
  return {
    [`${dmi}/sys_vendor`]: 'Some "Maker" \\ Inc.\n',
    [`${dmi}/product_name`]: '  R 740\txd  \n',
    [`${dmi}/product_serial`]: Buffer.from([0x53, 0xc3, 0xa4, 0xff, 0x31, 0x0a]),
    [`${dmi}/product_uuid`]: '4c4c4544-0001\n',
    [`${dmi}/chassis_asset_tag`]: '\n',
    [`${dmi}/bios_vendor`]: 'Maker of BIOS\n',
    [`${dmi}/bios_version`]: '1.2.3\n',
    [`${dmi}/bios_date`]: '01/02/2026\n',
    'sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c': Buffer.from([6, 0, 0, 0, 1]),
    'sys/firmware/dmi/tables/DMI': dmiTable(...slots),
    'proc/cpuinfo':
      'processor\t: 0\nmodel name\t: Some(R)   CPU @ 2.10GHz\nprocessor\t: 1\nprocessor : 2\nprocessor : 3\n',
    'proc/meminfo': 'MemTotal:       65536000 kB\nMemFree: 1 kB\n',
    'proc/sys/kernel/osrelease': '6.1.0-1-amd64\n',
    ...cpu(0, '0,2', '0,2'),
    ...cpu(2, '0,2', '0,2'),
    ...cpu(1, '1,3', '1,3'),
    ...cpu(3, '1,3', '1,3'),
    // A SATA disk, which has its serial number in page 80.
    'sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/model': 'ST4000NM0035    \n',
    'sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/state': 'running\n',
    'sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/vpd_pg80': Buffer.from(
      '\0\x80\0\x08  ZC18AB',
      'latin1'
    ),
    'sys/block/sda/device': { to: '../../devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0' },
    'sys/block/sda/size': '7814037168\n',
    'sys/block/sda/removable': '0\n',
    'sys/block/sda/queue/rotational': '1\n',
    'sys/block/nvme0n1/device/model': 'KIOXIA\n',
    'sys/block/nvme0n1/device/serial': 'N1\n',
    'sys/block/nvme0n1/device/state': 'live\n',
    'sys/block/nvme0n1/size': '1953525168\n',
    'sys/block/nvme0n1/queue/rotational': '0\n',
    // No disks of the machine: a stick, a path of a disk, a loop device, an empty reader.
    'sys/block/sdb/device/model': 'Stick\n',
    'sys/block/sdb/size': '100\n',
    'sys/block/sdb/removable': '1\n',
    'sys/block/nvme0c0n1/device/model': 'KIOXIA\n',
    'sys/block/nvme0c0n1/size': '1953525168\n',
    'sys/block/nvme0c0n1/hidden': '1\n',
    'sys/block/loop0/size': '8\n',
    'sys/block/sr0/device/model': 'DVD\n',
    'sys/block/sr0/size': '8\n',
    'sys/block/sdc/device/model': 'Reader\n',
    'sys/block/sdc/size': '0\n',
    'dev/disk/by-id/ata-ST4000_ZC18AB': { to: '../../sda' },
    'dev/disk/by-id/ata-ST4000_ZC18AB-part1': { to: '../../sda1' },
    'dev/disk/by-id/wwn-0x5000': { to: '../../sda' },
    'dev/disk/by-id/nvme-KIOXIA_N1': { to: '../../nvme0n1' },
    'sys/class/net/eth0/device/driver': { to: '../../../bus/pci/drivers/ice' },
    'sys/class/net/eth0/address': '52:54:00:00:00:01\n',
    'sys/class/net/eth0/speed': '25000\n',
    'sys/class/net/eth0/carrier': '1\n',
    'sys/class/net/eth1/device/driver': { to: '../../../bus/pci/drivers/ice' },
    'sys/class/net/eth1/address': '52:54:00:00:00:01\n',
    'sys/class/net/eth1/bonding_slave/perm_hwaddr': '52:54:00:00:00:02\n',
    'sys/class/net/eth1/speed': '-1\n',
    'sys/class/net/eth1/carrier': '0\n',
    // A virtual function, and an interface without a card.
    'sys/class/net/eth2/device/physfn': { to: '../0000:81:00.0' },
    'sys/class/net/eth2/address': '52:54:00:00:00:03\n',
    'sys/class/net/lo/address': '00:00:00:00:00:00\n',
    ...pci('0000:00:00.0', '0x060000', '0x8086', '0x0001'),
    ...pci('0000:81:00.0', '0x030200', '0x10de', '0x20b5', 'nvidia'),
    ...pci('0000:82:00.0', '0x020700', '0x15b3', '0x101b'),
    ...pci('0000:82:00.1', '0x020700', '0x15b3', '0x101c'),
    'sys/bus/pci/devices/0000:82:00.1/physfn': { to: '../0000:82:00.0' },
    'sys/class/tpm/tpm0/tpm_version_major': '2\n'
  }
}
