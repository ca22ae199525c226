const NOBODY: ReadonlySet<never> = new Set<never>()

/** Members by party: by the network of a client, or by user. */
export class Parties<M> {
  readonly #members = new Map<string, Set<M>>()

  of(party: string): ReadonlySet<M> {
    return this.#members.get(party) ?? NOBODY
  }

  add(party: string, member: M): void {
    const members = this.#members.get(party) ?? new Set()
    this.#members.set(party, members.add(member))
  }

  /** Returns whether it was a member. */
  delete(party: string, member: M): boolean {
    const members = this.#members.get(party)
    const isMember = members?.delete(member) === true
    if (members?.size === 0) this.#members.delete(party)
    return isMember
  }

  /** The members of the party with most. */
  get largest(): ReadonlySet<M> {
    let largest: ReadonlySet<M> = NOBODY
    for (const members of this.#members.values()) if (members.size > largest.size) largest = members
    return largest
  }
}
