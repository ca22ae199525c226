import { isSpace, SPACE, type TemplateSource, unsupported } from './errors.js'

/** A piece of a template: text, or a part of a tag. A sign is an operator or a bracket, also of a tag. */
export interface Token {
  readonly kind: 'text' | 'name' | 'string' | 'integer' | 'sign' | 'end'
  /** As written; for a string its value. */
  readonly text: string
  readonly at: number
}

const TAG = /\{[{%#]/g
const RAW = new RegExp(`\\{%[-+]?${SPACE}*raw${SPACE}*(-?)%\\}`, 'y')
const END_RAW = new RegExp(`\\{%([-+]?)${SPACE}*endraw${SPACE}*([-+]?)%\\}`, 'g')
const END_COMMENT = /(-?)#\}/g
const END_PRINT = /(-?)\}\}/y
const END_BLOCK = /([-+]?)%\}/y
const PARTS = [
  ['name', /[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*/uy],
  ['integer', /\d\w*(?:\.\d\w*)?/y],
  ['sign', /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}<>=.:|,]/y]
] as const
const BRACKETS: Readonly<Record<string, number>> = { '(': 1, '[': 1, '{': 1, ')': -1, ']': -1, '}': -1 }
const INTEGER = /^(?:0|[1-9]\d*)$/

const ESCAPES = new Map(Object.entries({ n: '\n', r: '\r', t: '\t', '"': '"', "'": "'", '\\': '\\' }))
/** Letters of Python's escapes that the subset lacks. */
const OTHER_ESCAPE = /[0-7abfvxuUN\n]|[^\0-\x7f]/

/** Cuts a template into tokens, the last of kind `end`. Throws TemplateError if it cannot be read. */
export const tokenize = (source: TemplateSource): Token[] => new Lexer(source).run()

class Lexer {
  readonly #text: string
  readonly #tokens: Token[] = []
  #at = 0

  constructor(readonly source: TemplateSource) {
    this.#text = source.text
  }

  run(): Token[] {
    while (this.#at < this.#text.length) this.#outside()
    this.#push('end', '', this.#text.length)
    return this.#tokens
  }

  /** Reads text up to the next tag, and the tag. */
  #outside(): void {
    const open = this.#find(TAG, this.#at)
    if (open === undefined) {
      this.#take(this.#text.length, false)
      return
    }
    const { index } = open
    const sign = this.#text.charAt(index + 2)
    this.#take(index, sign === '-')
    const raw = this.#find(RAW, index)
    const inside = index + (sign === '-' || sign === '+' ? 3 : 2)
    if (raw) this.#raw(raw)
    else if (open[0] === '{#') this.#comment(index, inside)
    else this.#tag(open[0], index, inside)
  }

  /** Pushes the text up to `end` and moves there; a `-` of the tag removes the white space before it. */
  #take(end: number, isStripped: boolean): void {
    let last = end
    while (isStripped && last > this.#at && isSpace(this.#text.charAt(last - 1))) last--
    if (last > this.#at) this.#push('text', this.#text.slice(this.#at, last), this.#at)
    this.#at = end
  }

  /** Moves behind a tag, and behind the white space that the `-` in the last group removes. */
  #leave(end: RegExpExecArray): void {
    this.#at = end.index + end[0].length
    if (end.at(-1) === '-') this.#skipSpace()
  }

  #comment(open: number, inside: number): void {
    const end = this.#find(END_COMMENT, inside)
    if (!end) throw this.source.error(open, 'the comment is not closed: #} is missing')
    this.#leave(end)
  }

  #raw(open: RegExpExecArray): void {
    this.#leave(open)
    const end = this.#find(END_RAW, this.#at)
    if (!end) throw this.source.error(open.index, 'the block raw is not closed: endraw is missing')
    this.#take(end.index, end[1] === '-')
    this.#leave(end)
  }

  #tag(bracket: string, open: number, inside: number): void {
    const [pattern, close] = bracket === '{{' ? [END_PRINT, '}}'] : [END_BLOCK, '%}']
    // Depth of open brackets, as `}}` may also end two maps.
    let depth = 0
    this.#push('sign', bracket, open)
    this.#at = inside
    for (;;) {
      this.#skipSpace()
      const at = this.#at
      if (at >= this.#text.length) throw this.source.error(open, `the tag is not closed: ${close} is missing`)
      const end = depth <= 0 ? this.#find(pattern, at) : undefined
      if (end) {
        this.#push('sign', close, at)
        this.#leave(end)
        return
      }
      this.#part()
      const sign = this.#tokens.at(-1)
      if (sign?.kind === 'sign') depth += BRACKETS[sign.text] ?? 0
    }
  }

  /** Reads a string, name, number or sign. */
  #part(): void {
    const at = this.#at
    const first = this.#text.charAt(at)
    if (first === "'" || first === '"') {
      this.#string(first)
      return
    }
    for (const [kind, pattern] of PARTS) {
      const text = this.#find(pattern, at)?.[0]
      if (text === undefined) continue
      if (kind === 'integer' && !(INTEGER.test(text) && Number.isSafeInteger(Number(text))))
        throw this.source.error(at, unsupported(`the number ${text}`))
      this.#at += text.length
      this.#push(kind, text, at)
      return
    }
    const character = String.fromCodePoint(this.#text.codePointAt(at) ?? 0)
    throw this.source.error(at, `unexpected character ${character}`)
  }

  #string(quote: string): void {
    const start = this.#at + 1
    let end = start
    while (end < this.#text.length && this.#text.charAt(end) !== quote)
      end += this.#text.charAt(end) === '\\' ? 2 : 1
    if (end >= this.#text.length) throw this.source.error(this.#at, 'the string is not closed')
    const value = this.#text
      .slice(start, end)
      .replace(/\\([\s\S])/g, (written, letter: string, offset: number) => {
        if (OTHER_ESCAPE.test(letter))
          throw this.source.error(start + offset, unsupported(`the escape ${written}`))
        // Python keeps a backslash that begins no escape.
        return ESCAPES.get(letter) ?? written
      })
    this.#push('string', value, this.#at)
    this.#at = end + 1
  }

  /** Returns the first match of a pattern; a sticky one matches only at `from`. */
  #find(pattern: RegExp, from: number): RegExpExecArray | undefined {
    pattern.lastIndex = from
    return pattern.exec(this.#text) ?? undefined
  }

  #skipSpace(): void {
    while (isSpace(this.#text.charAt(this.#at))) this.#at++
  }

  #push(kind: Token['kind'], text: string, at: number): void {
    this.#tokens.push({ kind, text, at })
  }
}
