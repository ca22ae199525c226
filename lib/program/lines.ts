import { StringDecoder } from 'node:string_decoder'

/** Longer lines are cut into pieces of this many characters, to bound memory. */
const LONGEST_LINE = 65_536

/** Splits a UTF-8 stream into lines. A carriage return ends a line too, as progress displays use it. */
export class Lines {
  readonly #decoder = new StringDecoder('utf8')
  #begun = ''
  #afterReturn = false

  constructor(private readonly take: (line: string) => void) {}

  add(bytes: Buffer): void {
    this.#split(this.#decoder.write(bytes))
  }

  /** Passes on an unterminated last line. */
  end(): void {
    this.#split(this.#decoder.end())
    if (this.#begun !== '') this.take(this.#begun)
    this.#begun = ''
  }

  #split(text: string): void {
    if (text === '') return
    // A CR LF in two chunks is one line end.
    const rest = this.#afterReturn && text.startsWith('\n') ? text.slice(1) : text
    this.#afterReturn = text.endsWith('\r')
    const lines = (this.#begun + rest).split(/\r\n|\n|\r/)
    this.#begun = lines.pop() ?? ''
    for (const line of lines) this.take(this.#takePieces(line))
    this.#begun = this.#takePieces(this.#begun)
  }

  /** Passes on pieces of an overlong line, and returns the rest. */
  #takePieces(line: string): string {
    let at = 0
    for (; line.length - at > LONGEST_LINE; at += LONGEST_LINE) this.take(line.slice(at, at + LONGEST_LINE))
    return line.slice(at)
  }
}
