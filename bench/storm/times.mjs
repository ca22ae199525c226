// Times in milliseconds, counted in steps of 2 %, so that those of many processes can be added up.
const STEP = Math.log(1.02)
const LEAST = 0.01

export class Times {
  constructor({ counts = [], total = 0, longest = 0 } = {}) {
    this.counts = counts
    this.total = total
    this.longest = longest
  }

  record(ms) {
    const step = Math.max(0, Math.ceil(Math.log(ms / LEAST) / STEP))
    this.counts[step] = (this.counts[step] ?? 0) + 1
    this.total++
    if (ms > this.longest) this.longest = ms
  }

  add({ counts, total, longest }) {
    for (const [step, count] of counts.entries())
      if (count) this.counts[step] = (this.counts[step] ?? 0) + count
    this.total += total
    this.longest = Math.max(this.longest, longest)
  }

  /** The time that a share `q` of all kept to. */
  quantile(q) {
    let left = q * this.total
    for (const [step, count] of this.counts.entries()) {
      left -= count ?? 0
      if (left <= 0 && count) return Math.min(LEAST * Math.exp(step * STEP), this.longest)
    }
    return this.longest
  }
}
