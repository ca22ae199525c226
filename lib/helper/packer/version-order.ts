import { hasAnyInside } from '../../disk/open-directory.js'

/** Compares two versions: below 0 where the second is newer, 0 where they are equal. */
type VersionOrder = (a: string, b: string) => number

/** Splits a version at its last dash, before rpm's release or dpkg's revision. */
function parts(version: string): [string, string | undefined] {
  const dash = version.lastIndexOf('-')
  return dash < 0 ? [version, undefined] : [version.slice(0, dash), version.slice(dash + 1)]
}

/** Compares two numbers of any length, as texts. */
const numbers = (a: string, b: string) => Number(BigInt(a) - BigInt(b))

/** Compares as `rpm.vercmp`: version, then release, in runs of digits or letters. */
export const rpmOrder: VersionOrder = (a, b) => {
  const [[version, release], [other, otherRelease]] = [parts(a), parts(b)]
  const order = rpmText(version, other)
  if (order !== 0 || release === otherRelease) return order
  return release === undefined ? -1 : otherRelease === undefined ? 1 : rpmText(release, otherRelease)
}

function rpmText(a: string, b: string): number {
  const [x, y] = [a, b].map(text => [...(text.match(/[0-9]+|[A-Za-z]+|[~^]/g) ?? [])]) as [string[], string[]]
  for (let i = 0; ; i++) {
    const [one, two] = [x[i] ?? '', y[i] ?? '']
    const byText = one < two ? -1 : Number(one > two)
    const order = kindOf(one) - kindOf(two) || (/^\d/.test(one) ? numbers(one, two) : byText)
    if (order !== 0 || one === '') return order
  }
}

/** The kinds of runs in their order: a tilde comes before the end of the text, digits come last. */
const kinds = [/^~/, /^$/, /^\^/, /^[A-Za-z]/, /^[0-9]/]
const kindOf = (run: string) => kinds.findIndex(kind => kind.test(run))

/** Compares as `dpkg --compare-versions`: runs of other characters, letters first, and numbers in turns. */
export const dpkgOrder: VersionOrder = (a, b) => {
  const [[version, revision = ''], [other, otherRevision = '']] = [parts(a), parts(b)]
  return dpkgText(version, other) || dpkgText(revision, otherRevision)
}

function dpkgText(a: string, b: string): number {
  const [x, y] = [a, b].map(text => text.split(/([0-9]+)/)) as [string[], string[]]
  for (let i = 0; i < Math.max(x.length, y.length); i++) {
    const [one, two] = [x[i] ?? '', y[i] ?? '']
    if (i % 2 === 1) {
      const order = numbers(one, two)
      if (order !== 0) return order
      continue
    }
    for (let at = 0; at < Math.max(one.length, two.length); at++) {
      const order = weight(one.charAt(at)) - weight(two.charAt(at))
      if (order !== 0) return order
    }
  }
  return 0
}

/** Weighs a character: the end of a text comes after a tilde and before letters, which precede all others. */
const weight = (character: string) =>
  character === ''
    ? 0
    : character === '~'
      ? -1
      : character.charCodeAt(0) + (/[A-Za-z]/.test(character) ? 0 : 256)

/** Returns the order of versions in an image: that of its own packages. */
export async function orderOf(tree: string): Promise<VersionOrder> {
  if (await hasAnyInside(tree, ['var/lib/dpkg', 'etc/debian_version'])) return dpkgOrder
  // A release has no dash: a third part is a flavour, as in 6.4.0-150600.23-default.
  const bare = (version: string) => version.replace(/^([^-]*-[^-]*)-.*$/, '$1')
  return (a, b) => rpmOrder(bare(a), bare(b)) || rpmOrder(a, b)
}
