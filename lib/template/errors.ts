/**
 * What is wrong with a template or with its rendering. Line and column count from 1, the column in characters
 * (rules 4.11).
 */
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

  /** Any error as a TemplateError; one that knows no place of its own stands at the beginning of `file`. */
  static of(error: unknown, file: string): TemplateError {
    if (error instanceof TemplateError) return error
    return new TemplateError(file, 1, 1, error instanceof Error ? error.message : String(error))
  }
}

/** A place in a template, which errors name. */
export interface Origin {
  readonly source: Source
  /** Offset in the source. */
  readonly at: number
}

/** The text of one template. It turns an offset in that text into a TemplateError. */
export class Source {
  /** `\n` is the only line end in it, as jinja2 reads a template. */
  readonly text: string

  constructor(
    readonly file: string,
    text: string
  ) {
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

/** The reason of an error about `what`, which is not in the subset. */
export function unsupported(what: string): string {
  return `${what} is not part of svcd's templates; docs/templates.md lists what is`
}

/** An operation on values that failed. It knows no place; the renderer adds where it happened. */
export class Failure extends Error {
  override readonly name = 'Failure'

  /** `origin` is where an undefined value was read, which tells more than where it was used. */
  constructor(
    reason: string,
    readonly origin?: Origin
  ) {
    super(reason)
  }
}
