import { appendFileSync, existsSync } from 'node:fs'
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { THROUGH_PIPE } from '../../lib/rehearsal/machine.js'
import { start, startChild } from './child.js'
import { output, requirePrograms } from './programs.js'

/**
 * With a large buffer of translated code, qemu 7.2 may take minutes to clear a page that held code. As all
 * servers have, it has a source of random numbers: without one a kernel waits for them.
 */
export const emulated = ['-accel', 'tcg,tb-size=64', '-cpu', 'qemu64,+rdrand'] as const

/** A network card that no firmware boots from. */
export interface Card {
  readonly mac: string
  readonly tap: string
  /** A file that gets what crosses the card, in the form of tcpdump. */
  readonly dump?: string
}

/**
 * A virtual machine with a serial console, a network card that it boots from and, where given, more cards or
 * a disk.
 */
export interface Machine {
  /** For messages. */
  readonly name: string
  readonly mac: string
  /**
   * `tap`: a tap of the namespace that `enter` leads into; `bootfile`: qemu's user network, which needs no
   * right; `wire`: the socket of another machine, which `wireEnd` made: these two are alone on a wire.
   */
  readonly network: { readonly tap: string } | { readonly bootfile: string } | { readonly wire: string }
  /** Further cards, in the order in which the kernel finds them. */
  readonly cards?: readonly Card[]
  /** Put before the command line (net.ts). */
  readonly enter?: readonly string[]
  /** Path of a raw disk image, the second boot device. */
  readonly disk?: string
  /**
   * Raw disk images that no firmware boots from while there is `disk`, in the order in which the kernel finds
   * them.
   */
  readonly moreDisks?: readonly string[]
  /** Raw disk images of NVMe disks, which no firmware boots from while there is `disk`. */
  readonly nvmeDisks?: readonly string[]
  /**
   * Default: bios (SeaBIOS); uefi is OVMF, fresh, as after a reset of its settings; secure is OVMF with
   * Secure Boot on and Microsoft's keys, which refuses the unsigned iPXE of a card's ROM: it asks by PXE.
   */
  readonly firmware?: Firmware
  /**
   * Directory of its TPM 2.0 (swtpm), which is made if it is missing and keeps what it is between runs: a
   * path of at most 80 characters, for its socket. One with an EK certificate of a CA of its own, below
   * /var/lib/swtpm-localca.
   */
  readonly tpm?: string
  /** Directory of UEFI's settings, kept between runs as the TPM's is; default: fresh for each run. */
  readonly settings?: string
  /**
   * What asks the network: the iPXE in the card's ROM (default), or UEFI's own PXE or HTTP boot, with no ROM.
   */
  readonly asks?: 'ipxe' | 'pxe' | 'http'
  /** Further arguments of qemu: devices that no firmware boots from, texts of SMBIOS. */
  readonly devices?: readonly string[]
  /** Default 512. */
  readonly memoryMiB?: number
  /** Default: 5 minutes, five times what a machine takes that is alone. */
  readonly timeLimitMs?: number
  /**
   * The machine is switched off when its console shows this; without it, it runs until it is off by itself.
   */
  readonly until?: RegExp
  /** Sees each line of the console when it is complete. */
  readonly onLine?: (line: string) => void
  /** Switches the machine off; the run then fails. */
  readonly signal?: AbortSignal
}

export type Firmware = 'bios' | 'uefi' | 'secure'

/** How a machine's run ended. */
export interface Run {
  /**
   * Exit status of qemu: 0 after a power off, odd after a write to the debug exit port; null when `until`
   * came.
   */
  readonly exit: number | null
  /** The console without terminal control sequences, lines ending in \n. */
  readonly console: string
}

const cardArguments = ({ mac, tap, dump }: Card, i: number): readonly string[] => [
  // A dump would hold the header of virtio before each frame.
  ...['-netdev', `tap,id=card${i},ifname=${tap},script=no,downscript=no${dump ? ',vnet_hdr=off' : ''}`],
  ...['-device', `virtio-net-pci,netdev=card${i},mac=${mac},romfile=`],
  ...(dump ? ['-object', `filter-dump,id=dump${i},netdev=card${i},file=${dump}`] : [])
]

/**
 * The card of a machine that another one reaches by `network: { wire }`: qemu's arguments. It need not be
 * there yet.
 */
export const wireEnd = (mac: string, wire: string): readonly string[] => [
  ...['-netdev', `stream,id=net0,server=on,addr.type=unix,addr.path=${wire}`],
  ...['-device', `virtio-net-pci,netdev=net0,mac=${mac},romfile=`]
]

const backendOf = (network: Machine['network']): string => {
  if ('tap' in network) return `tap,id=net0,ifname=${network.tap},script=no,downscript=no`
  if ('wire' in network) return `stream,id=net0,server=off,addr.type=unix,addr.path=${network.wire}`
  return `user,id=net0,bootfile=${network.bootfile}`
}

const ovmf = '/usr/share/OVMF'

// Else it tries PXE on IPv4 and on IPv6 for more than a minute before HTTP.
const way = {
  ipxe: [],
  pxe: ['-fw_cfg', 'name=opt/org.tianocore/IPv6PXESupport,string=no'],
  http: ['IPv4PXESupport', 'IPv6PXESupport'].flatMap(name => [
    '-fw_cfg',
    `name=opt/org.tianocore/${name},string=no`
  ])
} as const

/** Carries out backspaces: what is shown of a text that was corrected while it was written. */
function corrected(text: string): string {
  const shown: string[] = []
  for (const part of text.split(/(\x08)/))
    if (part !== '\x08') shown.push(...part)
    else if (shown.length > 0 && shown.at(-1) !== '\n') shown.pop()
  return shown.join('')
}

/**
 * A console as text: without terminal control sequences; cursor moves and line ends are \n, and a menu's
 * countdown is one line.
 */
export const plain = (text: string): string =>
  corrected(text)
    .replace(/\x1b\[\d+;\d+H/g, '\n')
    .replace(/\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|c)/g, '')
    .replace(/ *[\r\n]\s*/g, '\n')
    .replace(/^(.*?) +\(\d+\)\n(?:\1(?: +\(\d+\))?\n)+/gm, '$1\n')

/** The last 40 lines of a console, for messages. */
export const tail = (console: string): readonly string[] => console.trimEnd().split('\n').slice(-40)

/**
 * Runs a machine in software (no KVM) from power on: its firmware, the iPXE ROM of the network card, and what
 * the network tells it. Resolves when qemu has ended; nothing is left running.
 * @throws Error with the last 40 lines of the `console` when it has not ended within its time limit, or qemu fails.
 */
export async function runMachine(machine: Machine): Promise<Run> {
  requirePrograms('qemu-system-x86_64')
  const { firmware = 'bios', asks = asksOf(machine) } = machine
  if (firmware === 'bios') {
    requirePrograms('/usr/lib/ipxe/qemu/pxe-virtio.rom', '/usr/share/seabios/bios-256k.bin')
    return withTpm(machine, tpm => runWith(tpm, machine))
  }
  const kind = firmware === 'secure' ? '.ms' : ''
  requirePrograms('/usr/lib/ipxe/qemu/efi-virtio.rom', `${ovmf}/OVMF_CODE_4M${kind}.fd`)
  const directory = machine.settings ?? (await mkdtemp(join(tmpdir(), 'svcd-uefi-')))
  try {
    await mkdir(directory, { recursive: true })
    // It writes its settings.
    const settings = join(directory, 'vars.fd')
    if (!existsSync(settings)) await copyFile(`${ovmf}/OVMF_VARS_4M${kind}.fd`, settings)
    const flash = (unit: number, rest: string) => ['-drive', `if=pflash,format=raw,unit=${unit},${rest}`]
    const code = flash(0, `readonly=on,file=${ovmf}/OVMF_CODE_4M${kind}.fd`)
    const guarded = firmware === 'secure' ? secureMode : []
    const all = [...guarded, ...code, ...flash(1, `file=${settings}`), ...way[asks]]
    return await withTpm(machine, tpm => runWith([...all, ...tpm], machine))
  } finally {
    if (machine.settings === undefined) await rm(directory, { recursive: true, force: true })
  }
}

// Its settings can be written in system management mode alone.
const secureMode = ['-machine', 'q35,smm=on', '-global', 'driver=cfi.pflash01,property=secure,value=on']

const asksOf = ({ firmware, asks }: Machine) => asks ?? (firmware === 'secure' ? 'pxe' : 'ipxe')

/** Runs `run` with qemu's arguments for the machine's TPM, which is there until it resolves. */
async function withTpm<T>({ tpm }: Machine, run: (args: readonly string[]) => Promise<T>): Promise<T> {
  if (tpm === undefined) return run([])
  await makeTpm(tpm)
  const socket = join(tpm, 'socket')
  await rm(socket, { force: true })
  const control = ['--tpmstate', `dir=${tpm}`, '--ctrl', `type=unixio,path=${socket}`]
  const emulator = await startChild(['swtpm', 'socket', '--tpm2', ...control], () => existsSync(socket))
  const device = ['-tpmdev', 'emulator,id=tpm0,chardev=tpm', '-device', 'tpm-tis,tpmdev=tpm0']
  try {
    return await run(['-chardev', `socket,id=tpm,path=${socket}`, ...device])
  } finally {
    await emulator.stop()
  }
}

/** Makes the state of a TPM 2.0 in a directory, if it is not there: an EK with its certificate. */
export async function makeTpm(directory: string): Promise<void> {
  requirePrograms('swtpm', 'swtpm_setup')
  if (existsSync(join(directory, 'tpm2-00.permall'))) return
  await mkdir(directory, { recursive: true })
  await output('swtpm_setup', ['--tpm2', '--tpmstate', directory, '--create-ek-cert'])
}

async function runWith(firmware: readonly string[], machine: Machine): Promise<Run> {
  machine.signal?.throwIfAborted()
  const { network, disk, memoryMiB = 512, timeLimitMs = 300_000 } = machine
  const card = `virtio-net-pci,netdev=net0,mac=${machine.mac},bootindex=1`
  const [program = '', ...args] = [
    ...THROUGH_PIPE,
    ...(machine.enter ?? []),
    'qemu-system-x86_64',
    ...[...emulated, '-m', String(memoryMiB), '-nodefaults', '-no-reboot', '-display', 'none'],
    ...firmware,
    // Firmware that finds nothing to boot ends the machine at once.
    ...['-boot', 'reboot-timeout=1'],
    // SeaBIOS and iPXE write to the serial port as well.
    ...['-machine', 'graphics=off', '-serial', 'stdio'],
    ...['-netdev', backendOf(network), '-device', asksOf(machine) === 'ipxe' ? card : `${card},romfile=`],
    ...(machine.cards ?? []).flatMap(cardArguments),
    ...(disk ? ['-drive', `id=disk0,if=none,format=raw,file=${disk}`] : []),
    ...(disk ? ['-device', 'virtio-blk-pci,drive=disk0,bootindex=2'] : []),
    ...(machine.moreDisks ?? []).flatMap((file, i) => [
      ...['-drive', `id=more${i},if=none,format=raw,file=${file}`],
      ...['-device', `virtio-blk-pci,drive=more${i}`]
    ]),
    ...(machine.devices ?? []),
    ...(machine.nvmeDisks ?? []).flatMap((file, i) => [
      ...['-drive', `id=nvme${i},if=none,format=raw,file=${file}`],
      ...['-device', `nvme,drive=nvme${i},serial=nvme${i}`]
    ]),
    ...['-device', 'isa-debug-exit,iobase=0xf4,iosize=4']
  ]
  const { process: qemu, ended } = start(program, args, { input: '' })
  let raw = ''
  let shown = 0
  let stopped: 'until' | 'time limit' | 'signal' | undefined
  const stop = (why: 'until' | 'time limit' | 'signal') => {
    stopped ??= why
    qemu.kill('SIGKILL')
  }
  machine.signal?.addEventListener('abort', () => stop('signal'))
  // A long run is watched there: a test shows no console before it fails.
  const { SVCD_CONSOLES: kept } = process.env
  const look = () => {
    const lines = plain(raw).split('\n')
    for (const line of lines.slice(shown, -1)) machine.onLine?.(line)
    shown = Math.max(shown, lines.length - 1)
    if (!stopped && machine.until?.test(lines.join('\n'))) stop('until')
  }
  // A look reads the whole console, which comes in thousands of pieces of a few characters. So it waits for
  // 100 ms, also for `until`; a listener for lines is told at once when a line is complete. A cursor move, which
  // ends with H, completes one too.
  let later: NodeJS.Timeout | undefined
  const lookLater = () => {
    later = undefined
    look()
  }
  qemu.stdout?.on('data', (text: string) => {
    raw += text
    if (kept) appendFileSync(join(kept, `${machine.name}-${qemu.pid}`), text)
    if (machine.onLine && /[\n\rH]/.test(text)) look()
    else if (machine.until) later ??= setTimeout(lookLater, 100)
  })
  const timer = setTimeout(() => stop('time limit'), timeLimitMs)
  const { code, signal, stderr } = await ended.finally(() => clearTimeout(timer))
  clearTimeout(later)
  look()
  const console = plain(raw)
  const fail = (what: string) =>
    Object.assign(new Error(`${machine.name} ${what} ${stderr}`.trimEnd()), { console: tail(console) })
  if (stopped === 'until') return { exit: null, console }
  if (stopped === 'time limit') throw fail(`was not done after ${timeLimitMs / 1000} s`)
  if (stopped === 'signal') throw fail('was interrupted')
  if (code === null || code === 1) throw fail(`could not run: qemu ended with ${code ?? signal}`)
  if (machine.until) throw fail(`went off and never showed ${machine.until}`)
  return { exit: code, console }
}
