import { badRequest } from '../base/errors.js'
import { isObject, type JsonValue } from '../base/json.js'

/** The kind of a value in a report: a text, a whole number, yes or no, a list, or an object. */
export type Shape = 'text' | 'number' | 'flag' | readonly [Shape] | { readonly [field: string]: Shape }

type ValueOf<S> = S extends 'text'
  ? string
  : S extends 'number'
    ? number
    : S extends 'flag'
      ? boolean
      : S extends readonly [infer E]
        ? readonly ValueOf<E>[]
        : { readonly [K in keyof S]?: ValueOf<S[K]> }

/** The report of a node (rules 6.16), of a `boot` or an `installation`. Sizes are in bytes. */
export const inventoryShape = {
  source: 'text',
  system: { maker: 'text', product: 'text', serial: 'text', uuid: 'text', asset: 'text' },
  firmware: { vendor: 'text', version: 'text', date: 'text', mode: 'text', secure_boot: 'flag' },
  cpu: { model: 'text', sockets: 'number', cores: 'number', threads: 'number' },
  memory: {
    total: 'number',
    slots: [
      {
        ...{ slot: 'text', size: 'number', type: 'text', speed: 'number' },
        ...{ maker: 'text', serial: 'text', part: 'text' }
      }
    ]
  },
  disks: [
    {
      ...{ name: 'text', by_id: ['text'], size: 'number', model: 'text', serial: 'text' },
      ...{ rotational: 'flag', transport: 'text', health: 'text' }
    }
  ],
  interfaces: [{ name: 'text', mac: 'text', driver: 'text', speed: 'number', link: 'flag' }],
  pci: [{ address: 'text', class: 'text', vendor: 'text', device: 'text', driver: 'text' }],
  tpm: { version: 'text' },
  kernel: 'text',
  /** Public keys of its ssh server, in the form of OpenSSH. */
  host_keys: ['text']
} as const satisfies Shape

/** The hardware of a node. Values that it could not read are absent. */
export type Inventory = ValueOf<typeof inventoryShape>
/** A disk of a node. */
export type InventoryDisk = NonNullable<Inventory['disks']>[number]

const mostCharacters = 256
const mostEntries = 512

/** Parses the report of a node; unknown fields within its objects are left out. Throws 400 with the field. */
export function readInventory(node: string, report: JsonValue): Inventory {
  const fields = isObject(report) ? Object.keys(report) : ['']
  const unknown = fields.find(field => !Object.hasOwn(inventoryShape, field))
  const known = read(inventoryShape, report, '', node)
  // Its source alone would remove what is known.
  const told = Object.keys(known as object).filter(field => field !== 'source')
  if (unknown === undefined && told.length > 0) return known as Inventory
  const fault = unknown === undefined ? 'the report is empty' : `there is no field "${unknown}"`
  const all = Object.keys(inventoryShape).join(', ')
  throw badRequest(`inventory of node ${node}: ${fault}: its fields are ${all}`, 'invalid-field')
}

function read(shape: Shape, value: JsonValue, place: string, node: string): JsonValue {
  const refuse = (expected: string) =>
    badRequest(`inventory of node ${node}: ${place || 'the report'} must be ${expected}`, 'invalid-field')
  if (shape === 'text') {
    if (typeof value === 'string' && value.length <= mostCharacters) return value
    throw refuse(`a text of at most ${mostCharacters} characters`)
  }
  if (shape === 'number') {
    if (Number.isSafeInteger(value) && (value as number) >= 0) return value
    throw refuse('a whole number that is not negative')
  }
  if (shape === 'flag') {
    if (typeof value === 'boolean') return value
    throw refuse('true or false')
  }
  if (isList(shape)) {
    if (!Array.isArray(value) || value.length > mostEntries)
      throw refuse(`a list of at most ${mostEntries} entries`)
    return value.map((entry, i) => read(shape[0], entry, `${place}[${i}]`, node))
  }
  if (!isObject(value)) throw refuse('an object')
  const known: Record<string, JsonValue> = {}
  for (const [field, inner] of Object.entries(shape)) {
    const given = value[field] ?? null
    if (given !== null) known[field] = read(inner, given, place === '' ? field : `${place}.${field}`, node)
  }
  return known
}

/** Whether a shape is that of a list. */
export const isList = (shape: Shape): shape is readonly [Shape] => Array.isArray(shape)

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

const nicText = ({ driver, speed, link }: NonNullable<Inventory['interfaces']>[number]) =>
  `${driver ?? 'no driver'}${link && speed !== undefined ? ` ${speed} Mbit/s` : ''}`

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
    source === 'installation' || !interfaces ? undefined : counted(interfaces.map(nicText)),
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
