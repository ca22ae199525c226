import { isUtf8 } from 'node:buffer'
import jsonc, { type Node } from 'jsonc-parser'

/** A text that is not JSON; `line` counts from 1. */
export class JsonError extends Error {
  constructor(
    message: string,
    readonly line: number
  ) {
    super(message)
  }
}

/** Returns the line, from 1, of `offset`. */
const lineAt = (text: string, offset: number) => text.slice(0, offset).split('\n').length

/** Decodes a file; throws a JsonError if it is not UTF-8. */
export function decodeUtf8(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8')
  // In latin1, each byte is a character.
  const lines = bytes.toString('latin1').split('\n')
  throw new JsonError('not UTF-8', lines.findIndex(line => !isUtf8(Buffer.from(line, 'latin1'))) + 1)
}

/** Parses strictly; throws a JsonError with the line, which JSON.parse often omits. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    const errors: jsonc.ParseError[] = []
    jsonc.parseTree(text, errors, { disallowComments: true })
    const [first] = errors
    const what = error instanceof Error ? error.message : String(error)
    throw new JsonError(`not JSON: ${what}`, lineAt(text, first?.offset ?? 0))
  }
}

/** Returns the line of the value at `path`, or of its nearest existing parent. The text is valid JSON. */
export function lineOf(text: string, path: readonly (string | number)[]): number {
  const root = jsonc.parseTree(text)
  for (let length = path.length; root !== undefined && length > 0; length--) {
    const node = jsonc.findNodeAtLocation(root, path.slice(0, length))
    if (node !== undefined) return lineAt(text, node.offset)
  }
  return 1
}

/** Throws a JsonError for a duplicate key, of which JSON.parse silently keeps the last. */
export function refuseDuplicateKeys(text: string): void {
  const root = jsonc.parseTree(text)
  const left: Node[] = root === undefined ? [] : [root]
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    const children = node.children ?? []
    const seen = new Set<unknown>()
    for (const child of children) {
      const key = child.type === 'property' ? child.children?.[0] : undefined
      if (key !== undefined && seen.has(key.value)) {
        throw new JsonError(`the key ${JSON.stringify(key.value)} is given twice`, lineAt(text, key.offset))
      }
      if (key !== undefined) seen.add(key.value)
    }
    for (const child of children) left.push(child)
  }
}

/** Deep equality of JSON values; ignores the order of keys and undefined ones. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a) || Array.isArray(b)) return Array.isArray(a) && Array.isArray(b) && sameLists(a, b)
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>]
  let left = 0
  for (const key in y) if (y[key] !== undefined) left++
  for (const key in x) {
    if (x[key] === undefined) continue
    if (!sameJson(x[key], y[key])) return false
    left--
  }
  return left === 0
}

function sameLists(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((value, i) => sameJson(value, b[i]))
}
