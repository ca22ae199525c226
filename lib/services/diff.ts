const context = 3
const noEnd = '\n\\ No newline at end of file'
/** Beyond so many differences the middle is given as replaced, which is right, if not the shortest. */
const mostEdits = 1000

/** A line that both texts have, or one of them. */
type Line = readonly [' ' | '-' | '+', string]

/** Lines without their ends; one that lacks its end is marked as diff(1) does, and so is another line than one that has it. */
function linesOf(text = ''): string[] {
  if (text === '') return []
  return text.endsWith('\n')
    ? text.slice(0, -1).split('\n')
    : `${text}${noEnd}`.split(/\n(?!\\ No newline at end of file$)/)
}

/**
 * The difference between two texts in the unified format, '' where there is none; undefined stands for no file.
 */
export function unifiedDiff(path: string, before: string | undefined, after: string | undefined): string {
  if (before === after) return ''
  const all = compared(linesOf(before), linesOf(after))
  const title = (text: string | undefined) => (text === undefined ? '/dev/null' : path)
  return `--- ${title(before)}\n+++ ${title(after)}\n${hunks(all).join('')}`
}

function compared(old: readonly string[], now: readonly string[]): Line[] {
  let head = 0
  while (head < old.length && head < now.length && old[head] === now[head]) head++
  let tail = 0
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail))
    tail++
  const same = (lines: readonly string[]) => lines.map((line): Line => [' ', line])
  return [
    ...same(old.slice(0, head)),
    ...edits(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...same(old.slice(old.length - tail))
  ]
}

/** Myers' shortest edit script: the furthest reach on each diagonal for 0, 1, 2 … edits, then the way back. */
function edits(old: readonly string[], now: readonly string[]): Line[] {
  const [n, m] = [old.length, now.length]
  const reaches: Map<number, number>[] = []
  let reach = new Map([[1, 0]])
  for (let d = 0; d <= Math.min(n + m, mostEdits); d++) {
    reaches.push(new Map(reach))
    for (let k = -d; k <= d; k += 2) {
      let x = stepsDown(reach, k, d) ? at(reach, k + 1) : at(reach, k - 1) + 1
      while (x < n && x - k < m && old[x] === now[x - k]) x++
      reach.set(k, x)
      if (x >= n && x - k >= m) return wayBack(old, now, reaches)
    }
    reach = new Map(reach)
  }
  return [...old.map((line): Line => ['-', line]), ...now.map((line): Line => ['+', line])]
}

const at = (reach: ReadonlyMap<number, number>, k: number) => reach.get(k) ?? -1
const stepsDown = (reach: ReadonlyMap<number, number>, k: number, d: number) =>
  k === -d || (k !== d && at(reach, k - 1) < at(reach, k + 1))

function wayBack(
  old: readonly string[],
  now: readonly string[],
  reaches: readonly Map<number, number>[]
): Line[] {
  const lines: Line[] = []
  let [x, y] = [old.length, now.length]
  for (let d = reaches.length - 1; d >= 0; d--) {
    const reach = reaches[d] as Map<number, number>
    const k = x - y
    const down = stepsDown(reach, k, d)
    const [fromX, fromY] = down
      ? [at(reach, k + 1), at(reach, k + 1) - k - 1]
      : [at(reach, k - 1), at(reach, k - 1) - k + 1]
    while (x > fromX && y > fromY) {
      lines.push([' ', old[--x] as string])
      y--
    }
    if (d === 0) break
    if (down) lines.push(['+', now[--y] as string])
    else lines.push(['-', old[--x] as string])
  }
  return lines.reverse()
}

function hunks(lines: readonly Line[]): string[] {
  const result: string[] = []
  let [oldLine, newLine] = [1, 1]
  let i = 0
  while (i < lines.length) {
    const next = lines.findIndex(([sign], at) => at >= i && sign !== ' ')
    if (next < 0) break
    const from = Math.max(i, next - context)
    oldLine += from - i
    newLine += from - i
    let to = next
    // Up to a stretch of equal lines that is too long to be shown.
    for (let equal = 0; to < lines.length && equal <= 2 * context; to++)
      equal = lines[to]?.[0] === ' ' ? equal + 1 : 0
    const part = lines.slice(from, to)
    const kept = trimmed(part)
    const [olds, news] = [count(kept, '+'), count(kept, '-')]
    result.push(`@@ -${range(oldLine, olds)} +${range(newLine, news)} @@\n${kept.map(written).join('')}`)
    oldLine += olds
    newLine += news
    i = from + kept.length
  }
  return result
}

/** Without the equal lines at the end beyond the context. */
function trimmed(part: readonly Line[]): readonly Line[] {
  const last = part.findLastIndex(([sign]) => sign !== ' ')
  return part.slice(0, last + 1 + context)
}

const count = (lines: readonly Line[], without: '+' | '-') =>
  lines.filter(([sign]) => sign !== without).length
const range = (start: number, size: number) =>
  size === 1 ? `${start}` : `${size === 0 ? start - 1 : start},${size}`
const written = ([sign, line]: Line) => `${sign}${line}\n`
