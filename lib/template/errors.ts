/** An error in a template or its rendering. Line and column count from 1, in characters (rules 4.11). */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'

  constructor(
    readonly file: string,
    readonly line: number,
    readonly column: number,
    readonly reason: string
  ) {
    super(`${file}:${line}:${column}: ${reason}`)
  }

  /** Wraps any error; without a place of its own it is placed at the beginning of `file`. */
  static of(error: unknown, file: string): TemplateError {
    if (error instanceof TemplateError) return error
    return new TemplateError(file, 1, 1, error instanceof Error ? error.message : String(error))
  }
}

/** A place in a template, for errors. */
export interface Origin {
  readonly source: TemplateSource
  readonly at: number
}

/** The text of a template, which turns an offset into the place of an error. */
export class TemplateSource {
  /** All line ends are LF, as in jinja2. */
  readonly text: string

  constructor(
    readonly file: string,
    text: string
  ) {
    this.text = text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text
  }

  /** Makes an error at an offset. */
  error(at: number, reason: string): TemplateError {
    const before = this.text.slice(0, at)
    const lineStart = before.lastIndexOf('\n') + 1
    const line = before.split('\n').length
    return new TemplateError(this.file, line, [...before.slice(lineStart)].length + 1, reason)
  }
}

/** Returns the reason for an error about something that is not in the subset. */
export const unsupported = (what: string): string =>
  `${what} is not part of svcd's templates; docs/templates.md lists what is`

/** A failed operation on values. It has no place; the renderer adds it. */
export class OperationError extends Error {
  override readonly name = 'OperationError'

  /** The place where an undefined value was read, which helps more than where it was used. */
  constructor(
    reason: string,
    readonly origin?: Origin
  ) {
    super(reason)
  }
}

// Strings as Python handles them.

/** White space of Python as a regular expression; JavaScript's \s differs. */
export const SPACE = '[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]'
const IS_SPACE = new RegExp(SPACE)
const WORDS = new RegExp(`${SPACE.replace('[', '[^')}+`, 'g')
export const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/

/** Returns the characters of a string, which Python counts and indexes, unlike UTF-16 units. */
export const characters = (s: string): string[] => Array.from(s)

/** `str.isspace` for one character. */
export const isSpace = (character: string): boolean => IS_SPACE.test(character)

/** `str.strip`, `lstrip`, `rstrip`: removes white space, or the characters of `chars`, from some sides. */
export function strip(s: string, chars: string | undefined, left: boolean, right: boolean): string {
  const unwanted = chars === undefined ? undefined : new Set(characters(chars))
  const isUnwanted = (character = ''): boolean => unwanted?.has(character) ?? isSpace(character)
  const all = characters(s)
  let from = 0
  let to = all.length
  while (left && from < to && isUnwanted(all[from])) from++
  while (right && to > from && isUnwanted(all[to - 1])) to--
  return from === 0 && to === all.length ? s : all.slice(from, to).join('')
}

/** `str.split` at `separator` or white space, with at most `limit` cuts, any number if negative. */
export function split(s: string, separator: string | undefined, limit: number): string[] {
  if (separator === '') throw new OperationError('the separator of split() is empty')
  if (separator !== undefined) {
    const parts = s.split(separator)
    const isCut = limit >= 0 && parts.length > limit + 1
    return isCut ? [...parts.slice(0, limit), parts.slice(limit).join(separator)] : parts
  }
  const words: string[] = []
  for (const { 0: word, index } of s.matchAll(WORDS)) {
    if (words.length === limit) return [...words, s.slice(index)]
    words.push(word)
  }
  return words
}

/** `str.replace` with at most `limit` replacements, any if negative. Throws if `from` is empty. */
export function replace(s: string, from: string, to: string, limit: number): string {
  if (from === '') throw new OperationError('replace has no text to look for')
  return split(s, from, limit).join(to)
}

/** Compares strings by character, as Python does: the order of UTF-8, not of UTF-16. */
export const compareText = (a: string, b: string): number =>
  Buffer.compare(Buffer.from(a, 'utf8'), Buffer.from(b, 'utf8'))
