import { didYouMean } from '../base/did-you-mean.js'
import { type JsonObject, type JsonValue, jsonObject, strictUtf8 } from '../base/json.js'
import { base64, type Field, port } from '../model/field.js'
import type { ObjectType } from '../model/object-type.js'
import { interfaceEntry } from '../model/request.js'
import { fieldFor } from '../model/table.js'
import { wrongUsage } from './terminal.js'

/** Reads a long text: from a file, from stdin for `-`, and a secret without echo from a terminal. */
export type ReadText = (place: string, field: Field) => Promise<Buffer>

/** A type of object, the cluster, or a secret: each has settable fields. */
export type Settable = Pick<ObjectType, 'title' | 'fields' | 'interfaces'> & {
  readonly newName: readonly string[]
}

/** Returns the fields that a request may set. */
export const settable = ({ fields }: Pick<Settable, 'fields'>) =>
  fields.filter(({ derived }) => derived !== true)

/** Returns the interface fields that a request may set for this type. */
export const ofInterface = ({ interfaces = [] }: Pick<Settable, 'interfaces'>) =>
  interfaceEntry.filter(({ name }) =>
    name === 'force'
      ? interfaces.some(field => field.name === 'ipaddress')
      : name !== 'interface' && interfaces.some(field => field.name === name)
  )

/** Builds a request body from `FIELD=VALUE` words (rules 14.2). Throws Failure 2 naming the wrong word. */
export async function bodyOf(
  type: Settable,
  words: readonly string[],
  readText: ReadText
): Promise<JsonObject> {
  const body: JsonObject = {}
  const parts = new Map<string, JsonObject>()
  const put = (into: JsonObject, key: string, word: string, value: JsonValue) => {
    if (Object.hasOwn(into, key)) throw wrongUsage(`${word} is given twice`)
    into[key] = value
  }
  const partOf = (name: string) => {
    // Without a prototype, any name is an own key.
    const part = parts.get(name) ?? (Object.create(null) as JsonObject)
    parts.set(name, part)
    return part
  }
  for (const word of words) {
    const at = word.indexOf('=')
    if (at < 1) throw wrongUsage(`${word}: FIELD=VALUE is needed here`)
    const [key, text] = [word.slice(0, at), word.slice(at + 1)]
    const [of, rest] = [key.slice(0, Math.max(key.lastIndexOf('.'), 0)), key.slice(key.lastIndexOf('.') + 1)]
    const field = fieldFor(settable(type), key, text)
    const map = settable(type).find(({ name, isMergedByKey }) => isMergedByKey && key.startsWith(`${name}.`))
    const ofEntry = of === '' ? undefined : ofInterface(type).find(({ name }) => name === rest)
    if (field) put(body, field.name, key, await readValue(field, key, text, readText))
    else if (type.newName.includes(key)) put(body, type.newName[0] ?? key, key, text)
    else if (map) put(partOf(map.name), key.slice(map.name.length + 1), key, text === '' ? null : text)
    else if (ofEntry) put(partOf(` ${of}`), rest, key, await readValue(ofEntry, key, text, readText))
    else
      throw wrongUsage(
        `a ${type.title} has no field ${key}${didYouMean(key, keys(type))}; it has ${keys(type).join(', ')}`
      )
  }
  const interfaces: JsonObject[] = []
  for (const [name, part] of parts)
    if (name.startsWith(' ')) interfaces.push({ interface: name.slice(1), ...part })
    else put(body, name, name, part)
  return interfaces.length > 0 ? { ...body, interfaces } : body
}

/** Lists what may precede the `=`, for messages. */
const keys = (type: Settable) => [
  ...settable(type).map(({ name, isMergedByKey }) => (isMergedByKey ? `${name}.NAME` : name)),
  ...ofInterface(type).map(({ name }) => `INTERFACE.${name}`),
  ...type.newName.slice(0, 1)
]

/** Returns the values of a field that takes one of a few words. */
export function choices({ type }: Field): string[] {
  if (type.json === 'boolean') return ['yes', 'no']
  return /^one of (.+)$/.exec(type.expected)?.[1]?.split(', ') ?? []
}

async function readValue(field: Field, key: string, text: string, readText: ReadText): Promise<JsonValue> {
  if (text === '') return null
  const wrong = (expected: string) => wrongUsage(`${key} must be ${expected}, not ${text}`)
  const { type } = field
  if (type.json === 'boolean') {
    if (text === 'yes' || text === 'true') return true
    if (text === 'no' || text === 'false') return false
    throw wrong('yes or no')
  }
  if (type.json === 'integer') {
    const number = Number(text)
    if (Number.isSafeInteger(number) && String(number) === text) return number
    if (field.type === port) return text
    throw wrong(type.expected)
  }
  const bytes = await longText(field, text, readText)
  const isEmpty = bytes.length === 0 || (field.secret === true && /^\r?\n$/.test(bytes.toString('latin1')))
  if (isEmpty && (text === '-' || field.secret))
    throw wrongUsage(`${key}: ${text} gives no text; ${key}= unsets it`)
  if (type === base64) return bytes.toString('base64')
  const long = strictUtf8(bytes)
  if (long === undefined) throw wrongUsage(`${key}: ${text} does not hold text in UTF-8`)
  if (type.json === 'array' && /^\s*[[{]/.test(long)) {
    const list = jsonList(long)
    if (!Array.isArray(list))
      throw wrongUsage(`${key} must be ${type.expected}, and this is no JSON list: ${long}`)
    return list
  }
  if (type.json === 'array') return long.split(text === long ? ',' : /[,\r\n]+/).filter(entry => entry !== '')
  if (type.json === 'object') return jsonObject(long) ?? Promise.reject(wrong(type.expected))
  // `echo` ends its line.
  return field.secret ? long.replace(/\r?\n$/, '') : long
}

/** Parses a list of objects; undefined if it is no JSON. */
const jsonList = (text: string) => jsonObject(`{"list":${text}}`)?.list

function longText(field: Field, text: string, readText: ReadText): Promise<Buffer> {
  if (text === '-') return readText('-', field)
  if (text.startsWith('@@')) return Promise.resolve(Buffer.from(text.slice(1)))
  return text.startsWith('@') ? readText(text.slice(1), field) : Promise.resolve(Buffer.from(text))
}
