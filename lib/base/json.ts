export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue }
export type JsonObject = { [key: string]: JsonValue }

/** Whether a value is a JSON object: no array and not null. */
export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

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
