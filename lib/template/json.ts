import { Failure } from './errors.js'
import { less } from './operators.js'
import { formatFloat } from './text.js'
import { Float, isMap, label, mapGet, mapKeys, Undefined } from './values.js'

const UNSAFE = /[<>&']|[^ -~]/g
const DEEPEST = 100

/**
 * JSON as jinja2's `tojson` writes it: sorted keys, ASCII only, `<>&'` escaped too; `indent` spaces per
 * level, or on one line. Failure: undefined, views, iterators, keys that have no order.
 */
export function toJson(value: unknown, indent: number | undefined): string {
  return write(value, indent, 1)
}

function write(value: unknown, indent: number | undefined, level: number): string {
  if (level > DEEPEST) throw new Failure('the value is nested too deep for JSON')
  if (typeof value === 'string') return quoteJson(value)
  if (value === null || typeof value === 'boolean') return String(value)
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : writeFloat(value)
  if (value instanceof Float) return writeFloat(value.value)
  if (value instanceof Undefined) throw value.failure()
  if (Array.isArray(value)) {
    return bracket(
      '[',
      ']',
      indent,
      level,
      value.map(item => write(item, indent, level + 1))
    )
  }
  if (!isMap(value)) throw new Failure(`${label(value)} cannot be written as JSON`)
  const keys = mapKeys(value).sort((a, b) => (less(a, b) ? -1 : 1))
  const members = keys.map(key => `${quoteKey(key)}: ${write(mapGet(value, key), indent, level + 1)}`)
  return bracket('{', '}', indent, level, members)
}

function bracket(
  open: string,
  close: string,
  indent: number | undefined,
  level: number,
  items: readonly string[]
): string {
  if (items.length === 0) return open + close
  if (indent === undefined) return open + items.join(', ') + close
  const pad = (depth: number): string => `\n${' '.repeat(Math.max(0, indent) * depth)}`
  return open + pad(level) + items.join(`,${pad(level)}`) + pad(level - 1) + close
}

function quoteKey(key: unknown): string {
  return quoteJson(typeof key === 'string' ? key : write(key, undefined, 1))
}

function writeFloat(x: number): string {
  if (Number.isNaN(x)) return 'NaN'
  if (!Number.isFinite(x)) return x > 0 ? 'Infinity' : '-Infinity'
  return formatFloat(x)
}

/** JSON.stringify does quotes, backslashes and most control characters; all of its output but that is escaped. */
function quoteJson(s: string): string {
  return JSON.stringify(s).replace(UNSAFE, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
