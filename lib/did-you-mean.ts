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
    // One that was found goes before a beginning, and only a nearer one replaces it.
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

/**
 * How many letters are missing, added, changed or swapped with the next one (optimal string alignment); undefined where
 * that is more than `most`. Each difference is tried at the first place where the words part: that costs little as long as
 * `most` is 2.
 */
export function distanceWithin(a: string, b: string, most: number): number | undefined {
  const distance = distanceFrom(a, 0, b, 0, most)
  return distance > most ? undefined : distance
}

/** Between what follows letter `i` and letter `j`; any number above `most` where it is more. */
function distanceFrom(a: string, i: number, b: string, j: number, most: number): number {
  // What both begin with is never worth a difference.
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
