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
