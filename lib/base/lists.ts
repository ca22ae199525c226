/** Returns the value of a key; makes it first if there is none. */
export function getOrAdd<K, V extends {}>(
  map: { get(key: K): V | undefined; set(key: K, value: V): unknown },
  key: K,
  make: (key: K) => V
): V {
  const known = map.get(key)
  if (known !== undefined) return known
  const made = make(key)
  map.set(key, made)
  return made
}

/** Adds a value to the list of its key. */
export function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  getOrAdd(lists, key, () => []).push(value)
}

/** Maps each key to its values, both in the order of their first appearance: Map.groupBy of later Nodes. */
export function groupBy<K, V>(all: Iterable<V>, keyOf: (one: V) => K): Map<K, [V, ...V[]]> {
  const lists = new Map<K, [V, ...V[]]>()
  for (const one of all) addTo(lists, keyOf(one), one)
  return lists
}

const NOBODY: ReadonlySet<never> = new Set<never>()

/** Members by party: by the network of a client, or by user; without members there is no party. */
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
