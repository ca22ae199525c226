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
