/** Names that nothing needs, with the time since (monotonic), which counts anew after a restart. */
export class Grace {
  #since: ReadonlyMap<string, number> = new Map()

  constructor(
    private readonly graceMs: number,
    private readonly ticks: () => number
  ) {}

  /** Takes all names that are not needed now; the time of any other begins anew. Returns those to go. */
  over(names: Iterable<string>): string[] {
    const now = this.ticks()
    this.#since = new Map([...names].map(name => [name, this.#since.get(name) ?? now]))
    return [...this.#since].flatMap(([name, since]) => (now - since >= this.graceMs ? name : []))
  }

  /** Milliseconds until each name is to go. */
  get dueMs(): number[] {
    return [...this.#since.values()].map(since => since + this.graceMs - this.ticks())
  }
}
