import { leastDisks, leastMib } from '../disk-layout/data.js'
import type { Inventory } from '../inventory/facts.js'
import { contains, formatAddress, hosts, parseAddress } from '../model/address.js'
import { macsOf } from '../model/cluster-index.js'
import { type EffectiveNode, type Loader, layoutOf } from '../model/effective.js'
import type { View } from '../model/stored.js'
import { mebibytes } from '../model/types/disklayout.js'
import { interfaceOptions, membersOf } from '../model/types/interface.js'

/** A disk: its virtual size, and how the kernel shall see it. */
interface Disk {
  readonly mib: number
  readonly kind: 'nvme' | 'ssd' | 'hdd'
  readonly serial: string
}

/** The virtual machine that stands for a node. All paths in it are relative to the scratch directory. */
export interface Machine {
  readonly firmware: 'bios' | 'uefi'
  readonly loader: Loader
  /** MACs of its cards, the one that it boots from first. */
  readonly macs: readonly string[]
  /** The MACs of further cards in the network of the first: members of one bond with it. */
  readonly bonded: readonly string[]
  readonly card: string
  readonly disks: readonly Disk[]
  readonly memoryMib: number
  readonly cpus: number
  readonly tpm: boolean
  readonly net: Net
}

/** The network of the machine: slirp, in a network namespace of its own. */
export interface Net {
  /** `a.b.c.d/n`. */
  readonly prefix: string
  /** The node's address. */
  readonly node: string
  /** The address of slirp's own side: the controller's, where that is in the prefix. */
  readonly gateway: string
  readonly dns: string
  /** Where nodes reach svcd. */
  readonly controller: string
  readonly port: number
}

/** Bounds of the machine, and what this host can do. */
export interface Bounds {
  readonly memoryBytes: number
  readonly cpus: number
  readonly hasUefi: boolean
  readonly hasTpm: boolean
}

const MOST_CARDS = 8
const MOST_DISKS = 8
const MIB = 1_048_576
const LEAST_DISK_MIB = 10_240
const MOST_DISK_MIB = 2 * MIB
/** Drivers for which qemu has a card of that name; another card is virtio. */
const cards = ['e1000e', 'e1000', 'vmxnet3']

/** Describes the virtual machine for a node. Throws Error with a sentence where it cannot be rehearsed. */
export function machineOf(
  view: View,
  target: EffectiveNode,
  inventory: Inventory | undefined,
  { memoryBytes, cpus, hasUefi, hasTpm }: Bounds,
  where: { readonly controller: string; readonly port: number; readonly loader: Loader }
): Machine {
  const { node, interfaces, provision, settings } = target
  const about = `node ${node.name}`
  const mode = inventory?.firmware?.mode?.toLowerCase()
  const isUefi = where.loader === 'grub' || (mode === undefined ? hasUefi : mode === 'uefi')
  if (isUefi && !hasUefi)
    throw new Error(`${about} boots by UEFI, and OVMF is not installed: type apt-get install ovmf`)
  const first = provision?.macaddress ?? '52:54:00:00:00:01'
  const seen = inventory?.interfaces ?? []
  // A node reports them. InfiniBand has longer ones, and qemu reads options behind a comma.
  const found = seen.flatMap(
    ({ mac }) => /^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/.exec(mac?.toLowerCase() ?? '') ?? []
  )
  const members = interfaces.flatMap(({ interface: name, options }) => {
    const bond = membersOf(interfaceOptions(options).bond)
    return bond.includes('BOOTIF') || name === provision?.interface ? bond : []
  })
  const driver = seen.find(({ mac }) => mac?.toLowerCase() === first)?.driver ?? ''
  const total = inventory?.memory?.total ?? memoryBytes
  return {
    firmware: isUefi ? 'uefi' : 'bios',
    loader: where.loader,
    macs: [...new Set([first, ...macsOf(interfaces), ...found])].slice(0, MOST_CARDS),
    bonded: interfaces.flatMap(entry =>
      members.includes(entry.interface) && entry.macaddress !== first ? (entry.macaddress ?? []) : []
    ),
    card: cards.includes(driver) ? driver : 'virtio-net-pci',
    disks: disksOf(view, target, inventory),
    memoryMib: Math.floor(Math.min(total, memoryBytes) / MIB),
    cpus,
    tpm: settings.trust !== 'none' && hasTpm,
    net: netOf(target, where)
  }
}

/** The disks of a layout, of the least size that it takes; else those that the node has, if it installs. */
function disksOf(view: View, target: EffectiveNode, inventory: Inventory | undefined): Disk[] {
  const { settings } = target
  const bounded = (mib: number, most = MOST_DISK_MIB) =>
    Math.min(Math.max(mib, LEAST_DISK_MIB), most, MOST_DISK_MIB)
  const layout = layoutOf(view, target)
  const has = inventory?.disks ?? []
  if (has.length > 0)
    return has.slice(0, MOST_DISKS).map(({ size = 0, name = '', rotational, serial = '' }, i) => ({
      mib: bounded(Math.floor(size / MIB)),
      kind: name.startsWith('nvme') ? 'nvme' : rotational === false ? 'ssd' : 'hdd',
      serial: /^[\w-]{1,20}$/.test(serial) ? serial : `disk${i}`
    }))
  const wanted = (layout?.disks ?? []).flatMap(disk => {
    const mib = bounded(2 * leastMib(disk, layout as NonNullable<typeof layout>), mebibytes(disk.max))
    return Array.from({ length: Math.max(leastDisks(disk), 1) }, () => ({ mib, kind: disk.type ?? 'hdd' }))
  })
  const isLocal = settings.localinstall || settings.partscript !== ''
  const all = wanted.length > 0 || !isLocal ? wanted : [{ mib: 2 * LEAST_DISK_MIB, kind: 'hdd' as const }]
  return all.slice(0, MOST_DISKS).map((disk, i) => ({ ...disk, serial: `disk${i}` }))
}

function netOf(
  { node, provision, network, prefix }: EffectiveNode,
  { controller, port }: { readonly controller: string; readonly port: number }
): Net {
  const about = `node ${node.name} cannot be rehearsed`
  const at = parseAddress(controller)
  if (!network || !prefix || at === undefined)
    throw new Error(
      `${about}: its provision interface has no network of IPv4 (svcctl node show ${node.name})`
    )
  if (prefix.length < 8) throw new Error(`${about}: network ${network.name} is larger than a /8`)
  if (prefix.length > 29) throw new Error(`${about}: network ${network.name} is smaller than a /29`)
  const own = parseAddress(provision?.ipaddress ?? network.dhcp_range_begin ?? '')
  if (own === undefined)
    throw new Error(`${about}: it has no address, and its network ${network.name} no DHCP range`)
  const { first, last } = hosts(prefix)
  const isInside = contains(prefix, at)
  const gate = parseAddress(network.gateway ?? '')
  // Slirp answers at two addresses of the network, neither of them the node's.
  const ends = [first, first + 1, first + 2, last, last - 1, last - 2]
  const free = ends.filter(one => one !== own && one !== at)
  const isFree = gate !== undefined && contains(prefix, gate) && gate !== own
  const gateway = isInside ? at : isFree ? gate : free[0]
  const dns = free.findLast(one => one !== gateway)
  return {
    prefix: `${formatAddress(prefix.first)}/${prefix.length}`,
    node: formatAddress(own),
    gateway: formatAddress(gateway as number),
    dns: formatAddress(dns as number),
    ...{ controller, port }
  }
}

/** The files that the firmware of UEFI is in. */
export interface Ovmf {
  readonly code: string
  readonly settings: string
}

/** The socket of the TPM, in the scratch directory. */
export const TPM_SOCKET = 'tpm.socket'
/** The file of a disk, by its place. */
export const diskFile = (i: number): string => `disk${i}.raw`

/** Bytes that all disks together write in a second, at most. */
const MOST_PER_SECOND = 100_000_000

/** The first machine may only run as this. `spawn` and the like are refused to qemu by the kernel. */
const SANDBOX = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'

/**
 * A wrapper of a program whose standard output becomes a pipe, with room for 64 KiB. Node gives programs a
 * socket, which is full after some 280 writes of one character: while the reader has no turn, a serial port
 * loses what a guest writes after them. `cat` leaves the process group, which is killed at the program's end.
 */
export const THROUGH_PIPE: readonly string[] = ['bash', '-c', 'exec "$@" > >(exec setsid cat)', 'bash']

/** Returns qemu's arguments. It runs in the scratch directory; the console is its standard output. */
export function qemuArguments(machine: Machine, accel: 'kvm' | 'tcg', ovmf?: Ovmf): string[] {
  const { net, macs, bonded, card, disks, firmware, loader, tpm } = machine
  const drive = (rest: string) => ['-drive', `format=raw,${rest}`]
  const isGrub = loader === 'grub'
  const loads = isGrub
    ? 'tftp=tftp,bootfile=shimx64.efi'
    : `bootfile=http://${net.controller}:${net.port}/boot`
  const user = `net=${net.prefix},host=${net.gateway},dhcpstart=${net.node},dns=${net.dns}`
  // The watcher looks once a second at what is written.
  const slowly = `throttling.bps-write=${Math.floor(MOST_PER_SECOND / Math.max(disks.length, 1))}`
  const devices = { nvme: 'nvme', ssd: 'scsi-hd,rotation_rate=1', hdd: 'virtio-blk-pci' }
  // With a large buffer of translated code, qemu 7.2 may take minutes to clear a page that held code. A
  // kernel waits for random numbers if its processor gives none.
  const [accelerator, cpu] = accel === 'kvm' ? [accel, 'max'] : ['tcg,tb-size=64', 'Nehalem-v1,+rdrand']
  return [
    ...['-accel', accelerator, '-cpu', cpu, '-smp', `${machine.cpus}`],
    ...['-m', `${machine.memoryMib}`, '-nodefaults', '-no-user-config', '-display', 'none'],
    ...['-sandbox', SANDBOX, '-machine', 'pc,graphics=off', '-serial', 'stdio'],
    // Firmware that finds nothing tries again; the watcher ends that.
    ...['-boot', 'reboot-timeout=5000', '-device', 'virtio-rng-pci'],
    ...(firmware === 'uefi' && ovmf
      ? [
          ...drive(`if=pflash,unit=0,readonly=on,file=${ovmf.code}`),
          ...drive('if=pflash,unit=1,file=settings.fd'),
          ...['-fw_cfg', 'name=opt/org.tianocore/IPv6PXESupport,string=no']
        ]
      : []),
    ...['-netdev', `user,id=net0,${user},${loads}`],
    ...(bonded.length > 0 ? ['-netdev', 'hubport,id=hub,hubid=0,netdev=net0'] : []),
    ...macs.flatMap((mac, i) => {
      const isShared = bonded.length > 0 && (i === 0 || bonded.includes(mac))
      const [id, backend] = isShared ? [`port${i}`, 'hubport,hubid=0'] : [`net${i}`, 'user,restrict=on']
      return [
        ...(i > 0 || isShared ? ['-netdev', `${backend},id=${id}`] : []),
        '-device',
        `${card},netdev=${id},mac=${mac}${i === 0 ? ',bootindex=1' : ''}${i > 0 || isGrub ? ',romfile=' : ''}`
      ]
    }),
    ...(disks.some(({ kind }) => kind === 'ssd') ? ['-device', 'virtio-scsi-pci'] : []),
    ...disks.flatMap(({ kind, serial }, i) => [
      ...drive(`id=disk${i},if=none,discard=unmap,cache=unsafe,${slowly},file=${diskFile(i)}`),
      ...['-device', `${devices[kind]},drive=disk${i},serial=${serial},bootindex=${i + 2}`]
    ]),
    ...(tpm
      ? [
          ...['-chardev', `socket,id=tpm,path=${TPM_SOCKET}`, '-tpmdev', 'emulator,id=tpm0,chardev=tpm'],
          ...['-device', 'tpm-tis,tpmdev=tpm0']
        ]
      : [])
  ]
}
