/** Adds a value to the list of its key. */
export function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list) list.push(value)
  else lists.set(key, [value])
}

/** Maps each key to its values, both in the order of their first appearance: Map.groupBy of later Nodes. */
export function groupBy<K, V>(all: Iterable<V>, keyOf: (one: V) => K): Map<K, [V, ...V[]]> {
  const lists = new Map<K, [V, ...V[]]>()
  for (const one of all) addTo(lists, keyOf(one), one)
  return lists
}
