import type { Inventory } from './shape.js'

/** Facts by name, as text; absent: not known of the machine. */
export type Facts = Readonly<Partial<Record<FactName, string>>>
export type FactName = keyof typeof readers

const gib = 2 ** 30

/** Formats a size of memory. */
export const memorySize = (bytes: number) =>
  bytes < gib ? `${Math.round(bytes / 2 ** 20)} MiB` : `${Number((bytes / gib).toFixed(1))} GiB`

/** Formats the size of a disk as its maker does. */
export const diskSize = (bytes: number) =>
  bytes < 1e12 ? `${Number((bytes / 1e9).toFixed(1))} GB` : `${Number((bytes / 1e12).toFixed(2))} TB`

/** Returns how often each text is in a list: `2 x a, 1 x b`; '' for an empty list. */
export function counted(texts: readonly string[]): string {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([text, count]) => `${count} x ${text}`)
    .join(', ')
}

/** Whether the sizes of memory are the same: a kernel takes some for itself, another one a little more. */
export const isSameMemory = (a: number, b: number) => Math.abs(a - b) <= 0.02 * Math.max(a, b)

/** The filled slots. */
export const dimmsOf = ({ memory }: Inventory) => memory?.slots?.filter(({ size = 1 }) => size > 0)

const words = (...parts: readonly (string | number | undefined)[]) =>
  parts.filter(part => part !== undefined && part !== '').join(' ') || undefined

const isGpu = (kind: string) => /^(?:03|12)/.test(kind)
const isInfiniband = (kind: string) => /^(?:0207|0c06)/.test(kind)

/** The cards of some classes, by the ids of their makers and devices. */
const cards = ({ pci }: Inventory, is: (kind: string) => boolean) =>
  pci &&
  counted(pci.flatMap(({ class: kind = '', vendor, device }) => (is(kind) ? `${vendor}:${device}` : [])))

/** The facts of a machine in which nodes of a group are compared; the kernel is none of them. */
const readers = {
  model: ({ system }: Inventory) => words(system?.maker, system?.product),
  cpu: ({ cpu }: Inventory) => cpu?.model,
  sockets: ({ cpu }: Inventory) => words(cpu?.sockets),
  cores: ({ cpu }: Inventory) => words(cpu?.cores),
  threads: ({ cpu }: Inventory) => words(cpu?.threads),
  memory: ({ memory }: Inventory) => words(memory?.total),
  dimms: (of: Inventory) =>
    of.memory?.slots &&
    counted((dimmsOf(of) ?? []).map(({ size }) => (size ? memorySize(size) : 'unknown size'))),
  drives: ({ disks }: Inventory) =>
    disks && counted(disks.map(({ model, size }) => words(model, size && diskSize(size)) ?? 'unknown')),
  // An interface that nobody has set up has no speed.
  nics: ({ interfaces, source }: Inventory) =>
    source === 'installation'
      ? undefined
      : interfaces &&
        counted(
          interfaces.map(
            ({ driver, speed, link }) =>
              `${driver ?? 'no driver'}${link && speed !== undefined ? ` ${speed} Mbit/s` : ''}`
          )
        ),
  gpus: (of: Inventory) => cards(of, isGpu),
  infiniband: (of: Inventory) => cards(of, isInfiniband),
  cards: (of: Inventory) => cards(of, kind => !isGpu(kind) && !isInfiniband(kind)),
  firmware: ({ firmware }: Inventory) => words(firmware?.vendor, firmware?.version),
  boot: ({ firmware }: Inventory) => firmware?.mode,
  secureboot: ({ firmware }: Inventory) =>
    words(firmware?.secure_boot === undefined ? '' : String(firmware.secure_boot)),
  tpm: ({ tpm }: Inventory) => tpm?.version
} as const

/** The names of all facts. */
export const factNames = Object.keys(readers) as readonly FactName[]

/** Returns the facts of a machine. */
export function factsOf(inventory: Inventory): Facts {
  const facts: Partial<Record<FactName, string>> = {}
  for (const name of factNames) {
    const text = readers[name](inventory)
    if (text !== undefined) facts[name] = text
  }
  return facts
}
