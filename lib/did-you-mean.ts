/** Longer words are no slips of names, and so many names are compared at most: it is done while a request is refused. */
const longest = 64
const most = 20_000

/**
 * ` (did you mean "group"?)` for a word that is none of those known, '' where none is near: it differs in one or two
 * letters, counting two that changed places as one, or it is the beginning of one. Upper and lower case are the same.
 */
export function didYouMean(given: string, known: Iterable<string>): string {
  if (given.length > longest) return ''
  const word = given.toLowerCase()
  // In a short word two other letters make another word.
  let nearest = word.length < 3 ? 0 : word.length < 6 ? 1 : 2
  let found: string | undefined
  let beginning: string | undefined
  let looked = 0
  for (const name of known) {
    if (looked++ >= most) break
    const other = name.toLowerCase()
    if (word.length > 2 && other.startsWith(word)) beginning ??= name
    if (Math.abs(other.length - word.length) > nearest) continue
    const distance = distanceOf(word, other)
    if (distance < nearest || (distance === nearest && found === undefined)) {
      nearest = distance
      found = name
    }
  }
  const meant = found ?? beginning
  return meant === undefined ? '' : ` (did you mean ${JSON.stringify(meant)}?)`
}

/** How many letters are missing, added, changed or swapped with the next one (optimal string alignment). */
function distanceOf(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row[j] = Math.min(
        (last[j] as number) + 1,
        (row[j - 1] as number) + 1,
        (last[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1),
        swapped ? (before[j - 2] as number) + 1 : Number.POSITIVE_INFINITY
      )
    }
    before = last
    last = row
  }
  return last[b.length] as number
}
