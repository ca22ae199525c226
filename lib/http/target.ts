import { isUtf8 } from 'node:buffer'
import { badRequest, notFound } from '../errors.js'

/** A request target, taken apart. */
export interface Target {
  /** The path as the client sent it, still encoded. */
  readonly path: string
  /** What follows the first `?`, still encoded; empty without one. */
  readonly query: string
  /** The path's segments, percent-decoded once; empty ones (`//`, a trailing slash) are left out. */
  readonly segments: readonly string[]
}

const SLASH = 0x2f
const PERCENT = 0x25

/**
 * Takes a request target apart by hand: `new URL` would fold `%2e%2e` and so ask for another object than
 * the client named (rules 3.1). Origin form and absolute form are taken. `target` holds one character
 * per byte, as node:http gives it.
 * Throws 400 for any other form, a malformed `%` and invalid UTF-8; 404 for a segment that decodes to a
 * text with a slash or a NUL, since no object has such a name.
 */
export function parseTarget(target: string): Target {
  const start = pathStart(target)
  const mark = target.indexOf('?', start)
  const end = mark < 0 ? target.length : mark
  const path = target.slice(start, end) || '/'
  return { path, query: mark < 0 ? '' : target.slice(mark + 1), segments: splitPath(path) }
}

function pathStart(target: string): number {
  if (target.charCodeAt(0) === SLASH) return 0
  const scheme = /^https?:\/\/[^/?]+/i.exec(target)
  if (!scheme) throw badRequest('the request target must be a path that begins with a slash')
  return scheme[0].length
}

function splitPath(path: string): string[] {
  const plain = !/[%\u0080-\uffff]/.test(path)
  const segments: string[] = []
  let start = 0
  while (start < path.length) {
    if (path.charCodeAt(start) === SLASH) {
      start++
      continue
    }
    const slash = path.indexOf('/', start)
    const end = slash < 0 ? path.length : slash
    const raw = path.slice(start, end)
    segments.push(plain ? raw : decodeSegment(raw))
    start = end + 1
  }
  return segments
}

function decodeSegment(raw: string): string {
  const bytes = Buffer.allocUnsafe(raw.length)
  let length = 0
  for (let at = 0; at < raw.length; at++) {
    let byte = raw.charCodeAt(at)
    if (byte === PERCENT) {
      byte = hexDigit(raw.charCodeAt(at + 1)) * 16 + hexDigit(raw.charCodeAt(at + 2))
      if (Number.isNaN(byte)) throw badRequest('a % in the path must be followed by two hexadecimal digits')
      at += 2
    }
    bytes[length++] = byte
  }
  const used = bytes.subarray(0, length)
  if (!isUtf8(used)) throw badRequest('the path is not valid UTF-8')
  if (used.includes(SLASH) || used.includes(0)) throw notFound('no name holds a slash or a NUL')
  return used.toString('utf8')
}

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  const lower = code | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : Number.NaN
}
