/** Deep equality of JSON values; ignores the order of keys and undefined ones. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a) || Array.isArray(b)) return Array.isArray(a) && Array.isArray(b) && sameLists(a, b)
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>]
  let left = 0
  for (const key in y) if (y[key] !== undefined) left++
  for (const key in x) {
    if (x[key] === undefined) continue
    if (!sameJson(x[key], y[key])) return false
    left--
  }
  return left === 0
}

function sameLists(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((value, i) => sameJson(value, b[i]))
}
