/** Bounds on letters of a word and on compared names: suggestions run while a request is refused. */
const longest = 64
const most = 20_000

/**
 * Returns ` (did you mean "group"?)` for an unknown word, or '' if no known name is close: one or two letters
 * differ (a swap of neighbours counts as one), or the word is the beginning of the name. Case is ignored.
 */
export function didYouMean(given: string, known: Iterable<string>): string {
  if (given.length > longest) return ''
  const word = given.toLowerCase()
  // In a short word, two different letters make another word.
  let nearest = word.length < 3 ? 0 : word.length < 6 ? 1 : 2
  let found: string | undefined
  let beginning: string | undefined
  let looked = 0
  for (const name of known) {
    if (looked++ >= most) break
    // A close name beats a beginning, and only a closer one replaces it.
    const bound = found === undefined ? nearest : nearest - 1
    const isNearLong = Math.abs(name.length - word.length) <= bound
    const mayBegin = found === undefined && beginning === undefined && name.length > word.length
    if (!isNearLong && !mayBegin) continue
    const other = name.toLowerCase()
    if (mayBegin && word.length > 2 && other.startsWith(word)) beginning = name
    const distance = isNearLong ? distanceWithin(word, other, bound) : undefined
    if (distance === undefined) continue
    nearest = distance
    found = name
  }
  const meant = found ?? beginning
  return meant === undefined ? '' : ` (did you mean ${JSON.stringify(meant)}?)`
}

/** Returns the optimal string alignment distance of two words; undefined above `most`, which is small. */
export function distanceWithin(a: string, b: string, most: number): number | undefined {
  const distance = distanceFrom(a, 0, b, 0, most)
  return distance > most ? undefined : distance
}

/** Returns the distance of the rests from `i` and `j`; above `most`, some number above `most`. */
function distanceFrom(a: string, i: number, b: string, j: number, most: number): number {
  // Equal letters at the beginning never need an edit.
  while (i < a.length && j < b.length && a.charCodeAt(i) === b.charCodeAt(j)) {
    i++
    j++
  }
  const [leftA, leftB] = [a.length - i, b.length - j]
  const longer = Math.abs(leftA - leftB)
  if (leftA === 0 || leftB === 0 || longer > most) return longer
  if (most === 0) return 1
  const changed = distanceFrom(a, i + 1, b, j + 1, most - 1)
  const missing = distanceFrom(a, i, b, j + 1, most - 1)
  const added = distanceFrom(a, i + 1, b, j, most - 1)
  const isSwapped = leftA > 1 && leftB > 1 && a[i] === b[j + 1] && a[i + 1] === b[j]
  const swapped = isSwapped ? distanceFrom(a, i + 2, b, j + 2, most - 1) : most
  return 1 + Math.min(changed, missing, added, swapped)
}
