/**
 * The seed of a fuzzer: FUZZ_SEED where it is set, another one in each of the long tests, the same one in
 * each run of `make test`. A failure has to name it.
 */
export function fuzzSeed(): number {
  return Number(process.env.FUZZ_SEED ?? (process.env.SVCD_LONG ? Date.now() % 2 ** 32 : 3))
}

/** Chance that can be had again: the same numbers for the same seed (mulberry32). */
export class Random {
  #state: number

  constructor(readonly seed: number) {
    this.#state = seed >>> 0
  }

  /** From 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let x = this.#state
    x = Math.imul(x ^ (x >>> 15), x | 1)
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61)
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32
  }

  /** A whole number from 0 to below `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end)
  }

  /** True in `share` of the cases. */
  is(share: number): boolean {
    return this.next() < share
  }

  /** One of a list that is not empty. */
  pick<V>(list: readonly V[]): V {
    return list[this.below(list.length)] as V
  }
}
