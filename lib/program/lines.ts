import { StringDecoder } from 'node:string_decoder'

/** A longer line comes in pieces of this many characters, so that a program cannot fill the memory with one. */
const LONGEST_LINE = 65_536

/**
 * Cuts a stream of UTF-8 into lines as they come. A carriage return ends a line too: programs that show their
 * progress write over the last line that way.
 */
export class Lines {
  readonly #decoder = new StringDecoder('utf8')
  #begun = ''
  #afterReturn = false

  constructor(private readonly take: (line: string) => void) {}

  add(bytes: Buffer): void {
    this.#split(this.#decoder.write(bytes))
  }

  /** What stands after the last end of a line is a line too. */
  end(): void {
    this.#split(this.#decoder.end())
    if (this.#begun !== '') this.take(this.#begun)
    this.#begun = ''
  }

  #split(text: string): void {
    if (text === '') return
    // A CR LF that came in two parts is one end of a line.
    const rest = this.#afterReturn && text.startsWith('\n') ? text.slice(1) : text
    this.#afterReturn = text.endsWith('\r')
    const lines = (this.#begun + rest).split(/\r\n|\n|\r/)
    this.#begun = lines.pop() ?? ''
    for (const line of lines) this.take(this.#takePieces(line))
    this.#begun = this.#takePieces(this.#begun)
  }

  /** Hands over what is too long, and returns the rest. */
  #takePieces(line: string): string {
    let at = 0
    for (; line.length - at > LONGEST_LINE; at += LONGEST_LINE) this.take(line.slice(at, at + LONGEST_LINE))
    return line.slice(at)
  }
}
