/**
 * What is wrong with a template, or with rendering it: file, line and column count from 1, the column in
 * characters (rules 4.11).
 */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
  readonly file: string
  readonly line: number
  readonly column: number
  readonly reason: string

  constructor(file: string, line: number, column: number, reason: string) {
    super(`${file}:${line}:${column}: ${reason}`)
    this.file = file
    this.line = line
    this.column = column
    this.reason = reason
  }
}

/** One template's text; turns an offset in it into a TemplateError. */
export class Source {
  readonly file: string
  /** With `\n` as the only line end, as jinja2 reads it. */
  readonly text: string

  constructor(file: string, text: string) {
    this.file = file
    this.text = text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text
  }

  /** The error `reason` at the offset `at`. */
  error(at: number, reason: string): TemplateError {
    const before = this.text.slice(0, at)
    const lineStart = before.lastIndexOf('\n') + 1
    const line = before.split('\n').length
    return new TemplateError(this.file, line, [...before.slice(lineStart)].length + 1, reason)
  }
}

/** A failed operation on values, which knows no place; the renderer adds where it happened. */
export class Failure extends Error {
  override readonly name = 'Failure'
  /** Where an undefined value came from, which tells more than where it was used. */
  readonly origin: { readonly source: Source; readonly at: number } | undefined

  constructor(reason: string, origin?: { readonly source: Source; readonly at: number }) {
    super(reason)
    this.origin = origin
  }
}
