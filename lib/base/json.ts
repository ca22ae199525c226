export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue }
export type JsonObject = { [key: string]: JsonValue }

/** Whether a value is a JSON object: no array and not null. */
export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns the object below these keys, or an empty one. */
export function within(value: unknown, ...keys: readonly string[]): JsonObject {
  const found = keys.reduce((at, key) => (isObject(at) ? at[key] : undefined), value)
  return isObject(found) ? found : {}
}

/** Returns the objects of a list; none of anything else. */
export const objectsIn = (value: unknown): JsonObject[] =>
  Array.isArray(value) ? value.filter(isObject) : []

/** Parses a JSON object from outside; undefined for any other text. */
export function jsonObject(text: string): JsonObject | undefined {
  try {
    const json: unknown = JSON.parse(text)
    return isObject(json) ? json : undefined
  } catch {
    return undefined
  }
}

/** Parses a JSON object from outside; empty for any other text. */
export const jsonObjectOrEmpty = (text: string): JsonObject => jsonObject(text) ?? {}

/** Decodes UTF-8 from outside and keeps a byte order mark; undefined for invalid bytes. */
export function strictUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** Elements of a list that are made into one part. */
const PART = 128

/**
 * Returns texts that together are the JSON of a value. It yields between them, as a long list would hold the
 * event loop. The value is one of JSON, but fields of objects may be undefined.
 */
export function* jsonInParts(value: unknown): Generator<undefined, string[]> {
  if (typeof value !== 'object' || value === null) return [JSON.stringify(value)]
  const isLong = Array.isArray(value) && value.length > PART
  const parts = [Array.isArray(value) ? '[' : '{']
  const put = (part: string) => parts.push(parts.length > 1 ? `,${part}` : part)
  if (isLong)
    for (let i = 0; i < value.length; i += PART) {
      yield
      put(JSON.stringify(value.slice(i, i + PART)).slice(1, -1))
    }
  else
    for (const [key, field] of Object.entries(value)) {
      if (field === undefined) continue
      const [first = '', ...rest] = yield* jsonInParts(field)
      put(Array.isArray(value) ? first : `${JSON.stringify(key)}:${first}`)
      parts.push(...rest)
    }
  return [...parts, Array.isArray(value) ? ']' : '}']
}
