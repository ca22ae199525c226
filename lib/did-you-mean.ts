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

/** A letter is looked for at most so many places away: more were missing or added otherwise. */
const band = 2
const width = 2 * band + 1
/** More than any distance that counts. */
const far = 100
/** Rows of the table of distances: place k of row i, counted from 1, is for letter i + k - band - 1. The ends are never near. */
const rows = [new Uint8Array(width + 2), new Uint8Array(width + 2), new Uint8Array(width + 2)] as const

/**
 * How many letters are missing, added, changed or swapped with the next one (optimal string alignment); undefined where
 * that is more than `most`, which is 2 at most. It costs 5 steps for each letter, and ends where the words differ too much.
 */
export function distanceWithin(a: string, b: string, most: number): number | undefined {
  // What both begin with, and end with, costs next to nothing.
  let begin = 0
  while (begin < a.length && begin < b.length && a.charCodeAt(begin) === b.charCodeAt(begin)) begin++
  let [lengthA, lengthB] = [a.length - begin, b.length - begin]
  while (
    lengthA > 0 &&
    lengthB > 0 &&
    a.charCodeAt(begin + lengthA - 1) === b.charCodeAt(begin + lengthB - 1)
  ) {
    lengthA--
    lengthB--
  }
  if (Math.abs(lengthA - lengthB) > most) return undefined
  let before = rows[0].fill(far)
  let last = rows[1].fill(far)
  let row = rows[2].fill(far)
  for (let j = 0; j <= band; j++) last[j + band + 1] = j
  for (let i = 1; i <= lengthA; i++) {
    const letter = a.charCodeAt(begin + i - 1)
    let least = far
    for (let k = 1; k <= width; k++) {
      const j = i + k - band - 1
      let distance = far
      if (j === 0) distance = i
      else if (j > 0 && j <= lengthB) {
        const other = b.charCodeAt(begin + j - 1)
        distance = (last[k] as number) + (letter === other ? 0 : 1)
        const shorter = Math.min(last[k + 1] as number, row[k - 1] as number) + 1
        if (shorter < distance) distance = shorter
        if (i > 1 && j > 1 && letter === b.charCodeAt(begin + j - 2) && a.charCodeAt(begin + i - 2) === other)
          distance = Math.min(distance, (before[k] as number) + 1)
      }
      row[k] = distance
      if (distance < least) least = distance
    }
    if (least > most) return undefined
    const free = before
    before = last
    last = row
    row = free
  }
  const distance = last[lengthB - lengthA + band + 1] as number
  return distance > most ? undefined : distance
}
