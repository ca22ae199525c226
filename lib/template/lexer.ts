import type { Source } from './errors.js'
import { isSpace } from './text.js'

/** A part of a template: text, a bracket of a tag, or what stands in a tag. */
export interface Token {
  readonly kind: 'text' | '{{' | '}}' | '{%' | '%}' | 'name' | 'string' | 'number' | 'operator' | 'end'
  /** Text, name or operator as written; of a string its value. */
  readonly text: string
  /** Value of a number. */
  readonly number: number
  /** Is the number a float? */
  readonly isFloat: boolean
  readonly at: number
}

const FLOAT = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy
const NAME = /[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*/uy
const STRING = /'[^'\\]*(?:\\[\s\S][^'\\]*)*'|"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}<>=.:|,;]/y
const ESCAPE = /\\(?:\n|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|[0-7]{1,3}|[\s\S])/gu
const SIMPLE_ESCAPES = new Map(
  Object.entries({
    '\n': '',
    '\\': '\\',
    "'": "'",
    '"': '"',
    a: '\x07',
    b: '\b',
    f: '\f',
    n: '\n',
    r: '\r',
    t: '\t',
    v: '\v'
  })
)
const CLOSING = new Map([
  ['(', ')'],
  ['[', ']'],
  ['{', '}']
])

/** Cuts a template into tokens, the last of kind `end`. Throws the TemplateError of what is not closed or read. */
export function tokenize(source: Source): Token[] {
  return new Lexer(source).run()
}

class Lexer {
  readonly #source: Source
  readonly #text: string
  readonly #tokens: Token[] = []
  #at = 0

  constructor(source: Source) {
    this.#source = source
    this.#text = source.text
  }

  run(): Token[] {
    while (this.#at < this.#text.length) this.#outside()
    this.#push('end', '', this.#text.length)
    return this.#tokens
  }

  /** Text up to the next tag, and the tag. */
  #outside(): void {
    const start = this.#at
    const open = this.#nextTag(start)
    if (open < 0) {
      this.#push('text', this.#text.slice(start), start)
      this.#at = this.#text.length
      return
    }
    const bracket = this.#text.slice(open, open + 2)
    const sign = this.#text.charAt(open + 2)
    const data = this.#text.slice(start, open)
    this.#push('text', sign === '-' ? stripEnd(data) : data, start)
    this.#at = open + (sign === '-' || sign === '+' ? 3 : 2)
    if (bracket === '{#') this.#comment(open)
    else if (bracket === '{{') this.#inside(open, '{{', '}}')
    else if (!this.#raw(open)) this.#inside(open, '{%', '%}')
  }

  #nextTag(from: number): number {
    for (let at = this.#text.indexOf('{', from); at >= 0; at = this.#text.indexOf('{', at + 1)) {
      const next = this.#text.charAt(at + 1)
      if (next === '{' || next === '%' || next === '#') return at
    }
    return -1
  }

  #comment(open: number): void {
    const end = this.#text.indexOf('#}', this.#at)
    if (end < 0) throw this.#source.error(open, 'the comment is not closed: #} is missing')
    // `{#-#}`: the one sign is the opening bracket's
    const sign = end > this.#at ? this.#text.charAt(end - 1) : ''
    this.#at = end + 2
    if (sign === '-') this.#skipSpace()
  }

  /** `{% raw %}…{% endraw %}`; false, and nothing read, where the tag is another. */
  #raw(open: number): boolean {
    const start = this.#at
    const opened = this.#tagNamed('raw', false)
    if (!opened) {
      this.#at = start
      return false
    }
    const from = this.#at
    for (let at = this.#text.indexOf('{%', from); at >= 0; at = this.#text.indexOf('{%', at + 1)) {
      const sign = this.#text.charAt(at + 2)
      this.#at = at + (sign === '-' || sign === '+' ? 3 : 2)
      if (!this.#tagNamed('endraw', true)) continue
      const data = this.#text.slice(from, at)
      this.#push('text', sign === '-' ? stripEnd(data) : data, from)
      return true
    }
    throw this.#source.error(open, 'the block raw is not closed: endraw is missing')
  }

  /** Reads the rest of a tag that holds `name` alone, and the space that its `-%}` removes. */
  #tagNamed(name: string, plus: boolean): boolean {
    this.#skipSpace()
    if (!this.#text.startsWith(name, this.#at)) return false
    this.#at += name.length
    this.#skipSpace()
    const sign = this.#text.charAt(this.#at)
    const isSigned = sign === '-' || (plus && sign === '+')
    if (!this.#text.startsWith('%}', this.#at + (isSigned ? 1 : 0))) return false
    this.#at += isSigned ? 3 : 2
    if (sign === '-') this.#skipSpace()
    return true
  }

  /** The tokens of one tag, with its brackets. */
  #inside(open: number, bracket: '{{' | '{%', close: '}}' | '%}'): void {
    const openBrackets: string[] = []
    this.#push(bracket, bracket, open)
    for (;;) {
      this.#skipSpace()
      const at = this.#at
      if (at >= this.#text.length)
        throw this.#source.error(open, `the tag is not closed: ${close} is missing`)
      if (openBrackets.length === 0 && this.#closes(close)) {
        this.#push(close, close, at)
        return
      }
      if (this.#number() || this.#name() || this.#string()) continue
      const operator = this.#match(OPERATOR)
      if (operator === undefined) {
        const character = String.fromCodePoint(this.#text.codePointAt(at) ?? 0)
        const isQuote = character === "'" || character === '"'
        throw this.#source.error(
          at,
          isQuote ? 'the string is not closed' : `unexpected character ${character}`
        )
      }
      const closing = CLOSING.get(operator)
      if (closing !== undefined) openBrackets.push(closing)
      if (operator === ')' || operator === ']' || operator === '}') {
        const expected = openBrackets.pop()
        if (expected !== operator) {
          const hint = expected === undefined ? '' : `, expected ${expected}`
          throw this.#source.error(at, `unexpected ${operator}${hint}`)
        }
      }
      this.#push('operator', operator, at)
    }
  }

  #closes(close: '}}' | '%}'): boolean {
    const sign = this.#text.charAt(this.#at)
    const isSigned = sign === '-' || (close === '%}' && sign === '+')
    if (!this.#text.startsWith(close, this.#at + (isSigned ? 1 : 0))) return false
    this.#at += isSigned ? 3 : 2
    if (sign === '-') this.#skipSpace()
    return true
  }

  #number(): boolean {
    const at = this.#at
    // in `a.0.1` the points are not decimal points
    const float = this.#text.charAt(at - 1) === '.' ? undefined : this.#match(FLOAT)
    const digits = float ?? this.#match(INTEGER)
    if (digits === undefined) return false
    const number = Number(digits.replaceAll('_', ''))
    const isFloat = float !== undefined
    if (!isFloat && !Number.isSafeInteger(number)) throw this.#source.error(at, 'the integer is too large')
    this.#tokens.push({ kind: 'number', text: digits, number, isFloat, at })
    return true
  }

  #name(): boolean {
    const at = this.#at
    const name = this.#match(NAME)
    if (name !== undefined) this.#push('name', name, at)
    return name !== undefined
  }

  #string(): boolean {
    const at = this.#at
    const literal = this.#match(STRING)
    if (literal === undefined) return false
    const value = literal.slice(1, -1).replace(ESCAPE, (written, offset: number) => {
      const letter = written.slice(1, 2)
      const simple = SIMPLE_ESCAPES.get(written.slice(1))
      if (simple !== undefined) return simple
      const code = written.length > 2 ? Number.parseInt(written.slice(2), 16) : Number.NaN
      if (letter >= '0' && letter <= '7') return String.fromCodePoint(Number.parseInt(written.slice(1), 8))
      if (!Number.isNaN(code) && code <= 0x10ffff && 'xuU'.includes(letter)) return String.fromCodePoint(code)
      if ('xuUN'.includes(letter))
        throw this.#source.error(at + 1 + offset, `the escape ${written} is not readable`)
      return written
    })
    this.#push('string', value, at)
    return true
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const match = pattern.exec(this.#text)?.[0]
    if (match !== undefined) this.#at += match.length
    return match
  }

  #skipSpace(): void {
    while (isSpace(this.#text.charAt(this.#at))) this.#at++
  }

  #push(kind: Token['kind'], text: string, at: number): void {
    if (kind !== 'text' || text !== '') this.#tokens.push({ kind, text, number: 0, isFloat: false, at })
  }
}

function stripEnd(text: string): string {
  let end = text.length
  while (end > 0 && isSpace(text.charAt(end - 1))) end--
  return text.slice(0, end)
}
