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
  if (/%(?![\da-f]{2})/i.test(raw))
    throw badRequest('a % in the path must be followed by two hexadecimal digits')
  const text = raw.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  const bytes = Buffer.from(text, 'latin1')
  if (!isUtf8(bytes)) throw badRequest('the path is not valid UTF-8')
  if (bytes.includes(SLASH) || bytes.includes(0)) throw notFound('no name holds a slash or a NUL')
  return bytes.toString('utf8')
}
