import type { JsonObject, JsonValue } from '../base/json.js'

/** Approximate number of characters that are parsed in one step. */
export const PIECE_CHARACTERS = 64 * 1024

const [QUOTE, BACKSLASH, COMMA, SPACE] = [0x22, 0x5c, 0x2c, 0x20]
const isOpening = (code: number) => code === 0x7b || code === 0x5b
const isClosing = (code: number) => code === 0x7d || code === 0x5d

/**
 * Does in steps what JSON.parse does. The text must be valid JSON without a key `__proto__`; `large` maps the
 * start of each object and list longer than a piece to its end.
 */
export function* parsingPieces(text: string, large: ReadonlyMap<number, number>): Generator<void, JsonValue> {
  let start = 0
  while (text.charCodeAt(start) <= SPACE) start++
  return large.has(start) ? yield* container(text, start, large) : (JSON.parse(text) as JsonValue)
}

/** Parses an object or list that is longer than a piece. */
function* container(
  text: string,
  start: number,
  large: ReadonlyMap<number, number>
): Generator<void, JsonValue> {
  const [open, close] = text.charAt(start) === '{' ? '{}' : '[]'
  const list: JsonValue[] = []
  const object: JsonObject = {}
  const end = (large.get(start) as number) - 1
  const add = (from: number, to: number) => {
    if (text.slice(from, to).trim() === '') return
    const piece = JSON.parse(`${open}${text.slice(from, to)}${close}`)
    // One by one: a call takes a limited number of arguments.
    if (open === '[') for (const value of piece) list.push(value)
    else Object.assign(object, piece)
  }
  // Start of the piece, start of its last entry, current offset.
  let from = start + 1
  let entry = from
  let at = from
  while (at < end) {
    const code = text.charCodeAt(at)
    const inner = isOpening(code) ? large.get(at) : undefined
    if (code === QUOTE) at = stringEnd(text, at)
    else if (inner !== undefined) {
      if (entry > from) add(from, entry - 1)
      const value = yield* container(text, at, large)
      if (open === '[') list.push(value)
      else object[keyBefore(text, entry, at)] = value
      at = inner
      while (at < end && text.charCodeAt(at) !== COMMA) at++
      at++
      from = at
      entry = at
      yield
    } else if (isOpening(code)) at = closingOf(text, at)
    else if (code === COMMA) {
      at++
      entry = at
      if (at - from < PIECE_CHARACTERS) continue
      add(from, at - 1)
      from = at
      yield
    } else at++
  }
  if (from < end) add(from, end)
  return open === '[' ? list : object
}

/** The key of an entry at `entry` with its value at `at`. */
const keyBefore = (text: string, entry: number, at: number): string => {
  const [key] = Object.keys(JSON.parse(`{${text.slice(entry, at)}0}`) as object)
  return key as string
}

/** The offset behind the string that begins at `start`. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) return at + 1
    if (code === BACKSLASH) at++
  }
}

/** The offset behind the object or list that begins at `start`; it is no longer than a piece. */
function closingOf(text: string, start: number): number {
  let depth = 0
  for (let at = start; ; ) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) at = stringEnd(text, at)
    else {
      at++
      if (isOpening(code)) depth++
      else if (isClosing(code) && --depth === 0) return at
    }
  }
}
