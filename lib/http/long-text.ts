import { LIMITS } from './admission/limits.js'

/** A piece that took this long to make is sent, or skipped if it is empty. */
const PIECE_MS = 10
/** So many parts are made between two looks at the clock. */
const PARTS_PER_LOOK = 8
/** Bytes of a buffer for a piece, and how many are kept for the next ones. */
const BUFFER_BYTES = 320 * 1024
const MOST_SPARE = 4

/** A part of a long text that is worth a write, or took long to make. */
interface TextPiece {
  /** Joined when they are sent: texts of this size cost more than their bytes. */
  readonly parts: readonly string[]
  readonly bytes: number
  readonly characters: number
}

/** Characters of all texts that are kept from their measuring to their sending. */
let keptCharacters = 0

/**
 * A text that comes in parts, which are made twice: for its length and for sending, so that the whole is
 * never in memory. The parts of texts that are short enough together are kept.
 */
export class LongText {
  /** Of what was measured. */
  bytes = 0
  #characters = 0
  #kept: TextPiece[] | undefined = []
  #keptCharacters = 0
  #isMeasured = false

  constructor(private readonly parts: Iterable<string>) {}

  /** Makes a piece in each step, and counts its bytes. */
  *measuring(): Generator<TextPiece> {
    for (const piece of gathered(this.parts, false)) {
      this.bytes += piece.bytes
      this.#characters += piece.characters
      this.#keep(piece)
      yield piece
    }
    this.#isMeasured = true
  }

  /** Returns the text, a piece in each step. */
  *sending(): Generator<Buffer> {
    if (this.#isMeasured && this.#kept) for (const piece of this.#kept) yield joined(piece)
    else {
      this.forget()
      const isAscii = this.#isMeasured && this.bytes === this.#characters
      for (const piece of gathered(this.parts, isAscii)) yield joined(piece)
    }
  }

  /** Gives up what is kept. */
  forget(): void {
    this.#kept = undefined
    keptCharacters -= this.#keptCharacters
    this.#keptCharacters = 0
  }

  #keep(piece: TextPiece): void {
    if (keptCharacters + piece.characters > LIMITS.listKeptCharacters) this.forget()
    if (!this.#kept) return
    this.#kept.push(piece)
    this.#keptCharacters += piece.characters
    keptCharacters += piece.characters
  }
}

/** Returns pauses of about the time of a piece in work that yields nothing to send. */
export function* pauses(work: Iterable<''>): Generator<undefined> {
  for (const _ of gathered(work, true)) yield
}

/** Gathers parts, and a final newline, to pieces. `isAscii`: each character is known to be one byte. */
function* gathered(parts: Iterable<string>, isAscii: boolean): Generator<TextPiece> {
  let piece = { parts: [] as string[], bytes: 0, characters: 0 }
  const add = (part: string) => {
    piece.parts.push(part)
    piece.characters += part.length
    piece.bytes += isAscii ? part.length : Buffer.byteLength(part)
  }
  let begunMs = performance.now()
  let count = 0
  for (const part of parts) {
    if (part !== '') add(part)
    const isLong = piece.characters >= LIMITS.listPieceCharacters
    if (!isLong && (++count % PARTS_PER_LOOK !== 0 || performance.now() - begunMs < PIECE_MS)) continue
    yield piece
    piece = { parts: [], bytes: 0, characters: 0 }
    begunMs = performance.now()
  }
  add('\n')
  yield piece
}

const spare: Buffer[] = []

function joined({ parts, bytes, characters }: TextPiece): Buffer {
  const free = bytes <= BUFFER_BYTES ? spare.pop() : undefined
  const buffer = free ?? Buffer.allocUnsafeSlow(Math.max(bytes, BUFFER_BYTES))
  // ASCII is copied as it is.
  const encoding = bytes === characters ? 'latin1' : 'utf8'
  let at = 0
  for (const part of parts) at += buffer.write(part, at, encoding)
  return buffer.subarray(0, bytes)
}

/** Takes back the memory of bytes that nobody reads any more. */
export function reuse({ buffer }: Buffer): void {
  if (buffer.byteLength === BUFFER_BYTES && spare.length < MOST_SPARE) spare.push(Buffer.from(buffer))
}
