/**
 * What an image's pack leaves out, as a path from the image's root: `/var/cache/*`. `*` stands for any bytes and `?`
 * for one, but never for a slash; a backslash takes the next character as it is; every other character is itself.
 * What matches is left out with all below it, so that `/var/cache/*` keeps an empty directory and `/var/cache` none.
 *
 * Returns the pattern as GNU tar takes it (anchored, wildcards, no slash by wildcards), for members named `./…`.
 * Throws an Error for one that names no path: the whole image cannot be left out.
 */
export function pattern(exclude: string): string {
  const path = exclude
    .split('/')
    .filter(name => name !== '' && name !== '.')
    .map(name => name.replace(/\\?./gs, piece => ESCAPED.get(piece) ?? piece))
    .join('/')
  if (path === '') throw new Error(`exclude ${JSON.stringify(exclude)} names no path in an image`)
  return `./${path}`
}

/** GNU tar knows character classes, we do not; a lone backslash at the end is one. */
const ESCAPED = new Map([
  ['[', '\\['],
  ['\\', '\\\\']
])

/** A path below the image (`./a/b`) as a pattern that matches nothing else. */
export const verbatim = (path: string): string => path.replace(/[*?[\\]/g, '\\$&')

/** The options by which GNU tar leaves out what these patterns match. */
export const tarOptions = (patterns: readonly string[]): string[] => [
  '--anchored',
  '--wildcards',
  '--no-wildcards-match-slash',
  ...patterns.map(text => `--exclude=${text}`)
]

/** Tells whether a path (`./a/b`, a character per byte) is matched by one of the patterns. */
export function matcher(patterns: readonly string[]): (path: string) => boolean {
  if (patterns.length === 0) return () => false
  const expressions = patterns.map(text =>
    Buffer.from(text, 'utf8').toString('latin1').replace(/\\?./gs, expression)
  )
  const any = new RegExp(`^(?:${expressions.join('|')})$`)
  return path => any.test(path)
}

function expression(piece: string): string {
  if (piece === '*') return '[^/]*'
  if (piece === '?') return '[^/]'
  return `\\x${piece
    .charCodeAt(piece.length - 1)
    .toString(16)
    .padStart(2, '0')}`
}
