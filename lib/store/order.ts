const isDigit = (code: number): boolean => code >= 48 && code <= 57

/** Returns the end of the run of digits that starts at `from`. */
function digitsEnd(text: string, from: number): number {
  let end = from
  while (end < text.length && isDigit(text.charCodeAt(end))) end++
  return end
}

/** Returns the end of the leading zeros in `from`…`end`; the last digit always counts. */
function zerosEnd(text: string, from: number, end: number): number {
  let start = from
  while (start < end - 1 && text.charCodeAt(start) === 48) start++
  return start
}

/**
 * Natural order: runs of digits compare as numbers of any length (node2 before node10), all else by code
 * unit; ties (n1, n01) by code unit. A total order, without allocation: it runs millions of times.
 */
export function compareNames(a: string, b: string): number {
  let i = 0
  let j = 0
  while (i < a.length && j < b.length) {
    const x = a.charCodeAt(i)
    const y = b.charCodeAt(j)
    if (!isDigit(x) || !isDigit(y)) {
      if (x !== y) return x - y
      i++
      j++
      continue
    }
    const iEnd = digitsEnd(a, i)
    const jEnd = digitsEnd(b, j)
    i = zerosEnd(a, i, iEnd)
    j = zerosEnd(b, j, jEnd)
    if (iEnd - i !== jEnd - j) return iEnd - i - (jEnd - j)
    for (; i < iEnd; i++, j++) {
      const difference = a.charCodeAt(i) - b.charCodeAt(j)
      if (difference !== 0) return difference
    }
  }
  const left = a.length - i - (b.length - j)
  if (left !== 0) return left
  return a < b ? -1 : a > b ? 1 : 0
}

/** A sorted list without duplicates. Search is logarithmic; a change moves the tail. */
export class Sorted<V> {
  readonly #values: V[] = []

  constructor(private readonly compare: (a: V, b: V) => number) {}

  /** The values in order; live, read-only. */
  get values(): readonly V[] {
    return this.#values
  }

  /** Returns the position of the first value not before `value`; the length if there is none. */
  position(value: V): number {
    const last = this.#values.at(-1)
    if (last === undefined || this.compare(last, value) < 0) return this.#values.length
    let low = 0
    let high = this.#values.length - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      const there = this.#values[middle]
      if (there !== undefined && this.compare(there, value) < 0) low = middle + 1
      else high = middle
    }
    return low
  }

  has(value: V): boolean {
    return this.#isAt(this.position(value), value)
  }

  /** Adds a value; false if it is there already. */
  add(value: V): boolean {
    const position = this.position(value)
    if (this.#isAt(position, value)) return false
    this.#values.splice(position, 0, value)
    return true
  }

  /** Removes a value; false if it is not there. */
  remove(value: V): boolean {
    const position = this.position(value)
    if (!this.#isAt(position, value)) return false
    this.#values.splice(position, 1)
    return true
  }

  #isAt(position: number, value: V): boolean {
    const there = this.#values[position]
    return there !== undefined && this.compare(there, value) === 0
  }
}

/** Names in natural order. */
export class SortedNames extends Sorted<string> {
  constructor() {
    super(compareNames)
  }
}
