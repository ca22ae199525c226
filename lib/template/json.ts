import { Failure } from './errors.js'
import { compareText } from './text.js'
import { isMap, label, mapGet, mapKeys, misuse, toInteger } from './values.js'

const UNSAFE = /[<>&']|[^ -~]/g
const DEEPEST = 100

/**
 * JSON on one line as jinja2's `tojson` writes it: sorted keys, ASCII only, with `<>&'` escaped too. Failure:
 * what is no data.
 */
export function toJson(value: unknown, level = 1): string {
  if (level > DEEPEST) throw new Failure(`the value is nested over ${DEEPEST} deep`)
  if (typeof value === 'string') return quoteJson(value)
  if (value === null || typeof value === 'boolean') return String(value)
  if (toInteger(value) !== undefined) return String(value)
  if (Array.isArray(value)) return `[${value.map(item => toJson(item, level + 1)).join(', ')}]`
  if (!isMap(value)) throw misuse(value, `${label(value)} cannot be written as JSON`)
  const keys = mapKeys(value).sort(compareText)
  const members = keys.map(key => `${quoteJson(key)}: ${toJson(mapGet(value, key), level + 1)}`)
  return `{${members.join(', ')}}`
}

/** JSON.stringify escapes quotes, backslashes and most control characters; the rest is done here. */
function quoteJson(s: string): string {
  return JSON.stringify(s).replace(UNSAFE, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
