import { isUtf8 } from 'node:buffer'
import { createScanner, type JSONScanner } from 'jsonc-parser'
import { runSync } from '../base/concurrency.js'
import { badRequest, type ServiceError } from '../base/errors.js'
import type { JsonObject, JsonValue } from '../base/json.js'

/** Values that are read in one step. */
const VALUES_AT_ONCE = 512

/** Maximum nesting of objects and lists (rules 1.7). */
export const MAX_DEPTH = 64

/** The scanner's kind of a number: its own enumeration exists for the compiler only. */
const NUMBER = 11

const QUOTE = 0x22
const BACKSLASH = 0x5c

/**
 * Parses strict JSON (RFC 8259, rules 1.7) and never repairs it. Throws 400 with line, column and reason for
 * an empty body, invalid UTF-8, a BOM, comments, trailing commas, duplicate keys, the key `__proto__`, lone
 * surrogates, a number too large for a double, nesting over 64, and all else that is not JSON. Line and
 * column count from 1, the column in characters. Linear time, flat stack.
 */
export function parseStrict(bytes: Uint8Array): JsonValue {
  return runSync(parsingStrict(bytes))
}

/** The same in steps, for a long text. */
export function* parsingStrict(bytes: Uint8Array): Generator<void, JsonValue> {
  const text = decode(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
  return yield* new Parser(text).parsing()
}

function decode(bytes: Buffer): string {
  const text = bytes.toString('utf8')
  if (!isUtf8(bytes)) throw wrong(text, firstReplaced(bytes, text), 'this byte is not valid UTF-8')
  if (text.charCodeAt(0) === 0xfeff) throw wrong(text, 0, 'a byte order mark is not allowed')
  return text
}

/** The offset of the first U+FFFD in `text` that stands for bytes which were not UTF-8. */
function firstReplaced(bytes: Buffer, text: string): number {
  let byteOffset = 0
  let from = 0
  for (;;) {
    const at = text.indexOf('\ufffd', from)
    byteOffset += Buffer.byteLength(text.slice(from, at))
    if (bytes.readUIntBE(byteOffset, Math.min(3, bytes.length - byteOffset)) !== 0xefbfbd) return at
    byteOffset += 3
    from = at + 1
  }
}

/** Counts without a copy: a hostile body may have millions of lines, or millions of characters in one. */
function wrong(text: string, offset: number, what: string): ServiceError {
  let line = 1
  let column = 1
  for (let at = 0; at < offset; at++) {
    const code = text.charCodeAt(at)
    const endsLine = code === 0x0a || (code === 0x0d && text.charCodeAt(at + 1) !== 0x0a)
    const firstHalf = code >= 0xd800 && code <= 0xdbff
    if (endsLine) line++
    column = endsLine ? 1 : firstHalf ? column : column + 1
  }
  return badRequest(`the body is not valid JSON: line ${line}, column ${column}: ${what}`, 'invalid-body')
}

/** The first `length` characters at most, none cut in half. */
const shortened = (text: string, length: number) => [...text.slice(0, 2 * length)].slice(0, length).join('')

/** An index of a list, as V8 keeps such keys of an object apart. */
const INDEX = /^(?:0|[1-9]\d{0,9})$/
/** Members of a container that is made when it ends, without room for more. */
const FEW = 64

/** An object that is read. */
class OpenObject {
  #few: Map<string, JsonValue> | undefined = new Map()
  #object: JsonObject = {}
  /** The key of the value that comes next. */
  key = ''

  has(key: string): boolean {
    return this.#few?.has(key) ?? Object.hasOwn(this.#object, key)
  }

  add(value: JsonValue): void {
    if (!this.#few) this.#object[this.key] = value
    // The room is small beside a larger object, which is made as it is read.
    else if (this.#few.set(this.key, value).size > FEW) this.end()
  }

  end(): JsonObject {
    // V8 gives a new object 4 kB for a key "320", room for the indexes below it; JSON.parse does not.
    const indexes = [...(this.#few?.keys() ?? [])].filter(key => INDEX.test(key))
    if (indexes.length > 0) this.#object = JSON.parse(`{"${indexes.join('":0,"')}":0}`)
    for (const [key, value] of this.#few ?? []) this.#object[key] = value
    this.#few = undefined
    return this.#object
  }
}
interface OpenList {
  readonly list: JsonValue[]
}

/**
 * Walks over a text once and throws at the first deviation from strict JSON. It skips white space and strings
 * itself: the scanner joins them character by character, which takes over a gigabyte for a hostile body of 64
 * MB, and does not say where in a string the error is.
 */
class Parser {
  readonly #scanner: JSONScanner
  /** The innermost last. */
  readonly #open: (OpenObject | OpenList)[] = []
  #at = 0

  constructor(private readonly text: string) {
    this.#scanner = createScanner(text)
  }

  *parsing(): Generator<void, JsonValue> {
    if (this.#skipSpace() === this.text.length) throw wrong(this.text, 0, 'the body is empty')
    for (let values = 1; ; values++) {
      if (values % VALUES_AT_ONCE === 0) yield
      const whole = this.#place(this.#value())
      if (whole !== undefined) return whole
    }
  }

  /** Reads a scalar or an empty container, and before it the openings of others with their first keys. */
  #value(): JsonValue {
    for (;;) {
      if (this.text.charCodeAt(this.#skipSpace()) === QUOTE) return this.#string()
      const token = this.#next()
      if (token === '{') {
        const open = new OpenObject()
        this.#push(open)
        if (this.#closes('}')) return open.end()
        this.#key(open, 'a key in double quotes or "}"')
      } else if (token === '[') {
        const open: OpenList = { list: [] }
        this.#push(open)
        if (this.#closes(']')) return open.list
      } else return this.#scalar(token)
    }
  }

  /** Puts a value into its container, and that into its own if it ends. Returns the whole at the end. */
  #place(given: JsonValue): JsonValue | undefined {
    for (let value = given; ; this.#open.pop()) {
      const token = this.#next()
      const open = this.#open.at(-1)
      if (!open) {
        if (token === '') return value
        throw this.#unexpected('the end of the body')
      }
      const isObject = open instanceof OpenObject
      if (isObject) open.add(value)
      else open.list.push(value)
      if (token === ',') {
        if (isObject) this.#key(open, 'a key in double quotes (no comma may follow the last one)')
        else if (this.#closes(']')) throw this.#unexpected('a value (no comma may follow the last one)')
        return undefined
      }
      if (token !== (isObject ? '}' : ']')) throw this.#unexpected(isObject ? '"," or "}"' : '"," or "]"')
      // A list that has grown has room for more: a copy has not.
      value = isObject ? open.end() : open.list.length > FEW ? open.list : open.list.slice()
    }
  }

  #push(open: OpenObject | OpenList): void {
    if (this.#open.length === MAX_DEPTH)
      throw wrong(this.text, this.#at - 1, `nested deeper than ${MAX_DEPTH} levels`)
    this.#open.push(open)
  }

  /** Closes the innermost container if its closing bracket comes next. */
  #closes(bracket: '}' | ']'): boolean {
    if (this.text.charAt(this.#skipSpace()) !== bracket) return false
    this.#next()
    this.#open.pop()
    return true
  }

  #key(open: OpenObject, expected: string): void {
    const start = this.#skipSpace()
    if (this.text.charCodeAt(start) !== QUOTE) {
      this.#next()
      throw this.#unexpected(expected)
    }
    const key = this.#string()
    if (open.has(key)) {
      const raw = this.text.slice(start, this.#at)
      throw wrong(this.text, start, `the key ${shortened(raw, 100)} stands twice`)
    }
    // Harmless in itself, but code that copies the object would set a prototype with it.
    if (key === '__proto__') throw wrong(this.text, start, 'the key "__proto__" is not allowed')
    open.key = key
    if (this.#next() !== ':') throw this.#unexpected('":"')
  }

  #scalar(token: string): JsonValue {
    if (token === 'null') return null
    if (token === 'true' || token === 'false') return token === 'true'
    const kind: number = this.#scanner.getToken()
    if (kind !== NUMBER || this.#scanner.getTokenError() !== 0) throw this.#unexpected('a value')
    const start = this.#scanner.getTokenOffset()
    if (/\d/.test(this.text.charAt(this.#at))) throw wrong(this.text, start, 'a number must not begin with 0')
    const number = Number(token)
    if (!Number.isFinite(number)) throw wrong(this.text, start, 'too large a number')
    return number
  }

  /** Reads a string that begins here. */
  #string(): string {
    const { text } = this
    const start = this.#at
    let at = start + 1
    for (;;) {
      const code = text.charCodeAt(at)
      if (code === QUOTE) break
      if (code === BACKSLASH) at = this.#escape(at)
      else if (code < 0x20) throw wrong(text, at, 'a control character in a string must be escaped')
      else if (at >= text.length) throw wrong(text, start, 'this string has no end')
      else at++
    }
    this.#at = at + 1
    // A copy: a slice would keep the whole body in memory.
    return JSON.parse(text.slice(start, this.#at)) as string
  }

  /** The offset behind the escape sequence, or pair of surrogates, at `at`. */
  #escape(at: number): number {
    const { text } = this
    const letter = text.charAt(at + 1)
    if (letter !== 'u') {
      if (letter === '' || !'"\\/bfnrt'.includes(letter)) throw wrong(text, at, 'unknown escape sequence')
      return at + 2
    }
    const unit = this.#unit(at)
    if (unit < 0xd800 || unit > 0xdfff) return at + 6
    const next = unit < 0xdc00 && text.startsWith('\\u', at + 6) ? this.#unit(at + 6) : 0
    if (next < 0xdc00 || next > 0xdfff) throw wrong(text, at, 'a lone surrogate is no character')
    return at + 12
  }

  #unit(at: number): number {
    const digits = this.text.slice(at + 2, at + 6)
    if (!/^[\da-f]{4}$/i.test(digits))
      throw wrong(this.text, at, '\\u must be followed by four hexadecimal digits')
    return Number.parseInt(digits, 16)
  }

  #skipSpace(): number {
    for (;;) {
      const code = this.text.charCodeAt(this.#at)
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return this.#at
      this.#at++
    }
  }

  /** Reads a token; '' at the end. */
  #next(): string {
    const start = this.#skipSpace()
    this.#scanner.setPosition(start)
    this.#scanner.scan()
    this.#at = this.#scanner.getPosition()
    return this.text.slice(start, this.#at)
  }

  /** The error for the token just read. */
  #unexpected(expected: string): ServiceError {
    const start = this.#scanner.getTokenOffset()
    const token = this.text.slice(start, this.#at)
    if (token === '') return wrong(this.text, start, `the body ends where ${expected} is expected`)
    if (/^\/[/*]/.test(token)) return wrong(this.text, start, 'comments are not allowed')
    return wrong(this.text, start, `${expected} is expected, not ${shortened(token, 20)}`)
  }
}
