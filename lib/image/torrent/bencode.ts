/**
 * A bencoded value (BEP 3). Texts are bytes; keys of a dictionary are bytes too, one character each (latin1), as a
 * tracker uses info hashes as keys.
 */
export type Bencoded = number | Buffer | readonly Bencoded[] | ReadonlyMap<string, Bencoded>

/** The encoding of a value. There is only one, as the keys are sorted. */
export function encode(value: Bencoded): Buffer {
  if (typeof value === 'number') return Buffer.from(`i${value}e`)
  if (Buffer.isBuffer(value)) return Buffer.concat([Buffer.from(`${value.length}:`), value])
  const parts = isMap(value)
    ? [...value.keys()]
        .sort()
        .flatMap(key => [encode(Buffer.from(key, 'latin1')), encode(value.get(key) as Bencoded)])
    : value.map(encode)
  return Buffer.concat([Buffer.from(isMap(value) ? 'd' : 'l'), ...parts, Buffer.from('e')])
}

/**
 * Reads one value that fills the bytes. Integers beyond 2^53 and more than 32 levels are refused.
 * @throws Error saying at which byte the value is not valid.
 */
export function decode(bytes: Buffer): Bencoded {
  const reader = new Reader(bytes)
  const value = reader.value(0)
  reader.end()
  return value
}

/** An entry of a dictionary; undefined also where the value is no dictionary. */
export function entry(value: Bencoded | undefined, key: string): Bencoded | undefined {
  return isMap(value) ? value.get(key) : undefined
}

/** Whether a value is a dictionary. */
export function isMap(value: Bencoded | undefined): value is ReadonlyMap<string, Bencoded> {
  return value instanceof Map
}

const MAX_DEPTH = 32
const [END, INTEGER, LIST, DICTIONARY] = ['e', 'i', 'l', 'd'].map(letter => letter.charCodeAt(0))

class Reader {
  #at = 0

  constructor(readonly bytes: Buffer) {}

  value(depth: number): Bencoded {
    const letter = this.bytes[this.#at]
    if (depth > MAX_DEPTH) throw this.#wrong()
    if (letter === INTEGER) {
      this.#at++
      return this.#number(/^(?:0|-?[1-9]\d{0,15})$/, 'e')
    }
    if (letter === LIST) return this.#items(() => this.value(depth + 1))
    if (letter === DICTIONARY)
      return new Map(this.#items(() => [this.#text().toString('latin1'), this.value(depth + 1)]))
    return this.#text()
  }

  end(): void {
    if (this.#at !== this.bytes.length) throw this.#wrong()
  }

  /** Reads what stands between the letter of a list or a dictionary and its end. */
  #items<T>(read: () => T): T[] {
    const items: T[] = []
    this.#at++
    while (this.bytes[this.#at] !== END) items.push(read())
    this.#at++
    return items
  }

  #text(): Buffer {
    const length = this.#number(/^(?:0|[1-9]\d{0,8})$/, ':')
    const text = this.bytes.subarray(this.#at, this.#at + length)
    if (text.length !== length) throw this.#wrong()
    this.#at += length
    return text
  }

  /** Reads digits up to `end` and passes over that. */
  #number(form: RegExp, end: string): number {
    const text = this.bytes.toString('latin1', this.#at, this.#at + 20)
    const digits = text.slice(0, text.indexOf(end))
    const number = form.test(digits) ? Number(digits) : Number.NaN
    if (!text.includes(end) || !Number.isSafeInteger(number)) throw this.#wrong()
    this.#at += digits.length + 1
    return number
  }

  #wrong(): Error {
    return new Error(`is not bencoded (byte ${this.#at})`)
  }
}
