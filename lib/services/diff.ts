import { FILE_HEADERS_ONLY, formatPatch, structuredPatch } from 'diff'

/** Beyond so many differences the whole text is given as replaced, which is right, if not the shortest. */
const mostEdits = 1000

/**
 * The difference between two texts in the unified format, as diff(1) writes it; '' where there is none. Undefined
 * stands for no file.
 */
export function unifiedDiff(path: string, before: string | undefined, after: string | undefined): string {
  if (before === after) return ''
  const [old, now] = [before ?? '', after ?? '']
  const between = (from: string, to: string, options = {}) =>
    structuredPatch(path, path, from, to, undefined, undefined, { context: 3, ...options })
  let patch = between(old, now, old && now ? { maxEditLength: mostEdits } : {})
  if (!patch) {
    const hunks = [...between(old, '').hunks, ...between('', now).hunks]
    const [oldLines, newLines] = [hunks[0]?.oldLines ?? 0, hunks[1]?.newLines ?? 0]
    const lines = hunks.flatMap(hunk => hunk.lines)
    patch = { ...between('', ''), hunks: [{ oldStart: 1, oldLines, newStart: 1, newLines, lines }] }
  }
  const title = (text: string | undefined) => (text === undefined ? '/dev/null' : path)
  const text = formatPatch(
    { ...patch, oldFileName: title(before), newFileName: title(after) },
    FILE_HEADERS_ONLY
  )
  // A count of one is left out. No line of the texts themselves begins with @@: each has its sign before it.
  return text.replace(/^@@ .*/gm, header => header.replaceAll(/,1(?= )/g, ''))
}
