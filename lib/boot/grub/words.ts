/** Thrown for a script or an argument that GRUB does not take, or whose measurement is not known. */
export class GrubError extends Error {}

/**
 * Quotes a text as one word of a GRUB command. Throws GrubError for a character that GRUB cannot keep in a
 * word of a file: it reads bytes of ASCII.
 */
export function quoted(text: string): string {
  if (/[^\x20-\x7e]/.test(text))
    throw new GrubError(`${JSON.stringify(text)} has a character that GRUB does not take`)
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(text)) return text
  return `'${text.replaceAll("'", "'\\''")}'`
}

/**
 * Splits a kernel command line as the kernel does: at blanks outside of double quotes, which are no part
 * of a word. Throws GrubError for what GRUB would hand on in another form.
 */
export function kernelWords(line: string): string[] {
  const odd = /['\\]/.exec(line)?.[0]
  if (odd) throw new GrubError(`GRUB cannot hand on ${odd} in kernel options: leave it out`)
  const words = line.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []
  return words.map(word => word.replaceAll('"', ''))
}

/** The kernel's command line that GRUB makes of the words of `linux`, its file among them. */
export const commandLine = (words: readonly string[]): string =>
  words
    .map(word => {
      const escaped = word.replace(/["'\\]/g, '\\$&')
      return escaped.includes(' ') ? `"${escaped}"` : escaped
    })
    .join(' ')

/** Words that mean more than a command, and commands that run other scripts. */
const notPlain = new Set(
  (
    'if then else elif fi for in while until do done case esac select function menuentry submenu ' +
    'source . normal legacy_configfile extract_entries_configfile eval time ! [[ { }'
  ).split(' ')
)

/**
 * Yields the commands of a straight-line GRUB script, each as its words. `variables` may be used in it;
 * `name` is the script's. Throws GrubError at the line of what is not straight.
 */
export function* straightCommands(
  script: string,
  variables: Readonly<Record<string, string>>,
  name: string
): Generator<string[]> {
  for (const [i, line] of script.split('\n').entries()) {
    const fail = (what: string) =>
      new GrubError(`${name}, line ${i + 1}: ${what}, so its measurement is not known beforehand`)
    const words = wordsOf(line, variables, fail)
    const [first] = words
    if (first === undefined) continue
    if (notPlain.has(first) || /^\w+=/.test(first)) throw fail(`"${first}" is no plain command`)
    yield words
  }
}

/** A blank, a comment, or a part of a word: in quotes, escaped, plain or a variable. */
const part = /(\s+)|(#.*)|'([^']*)'|"((?:[^"\\`]|\\.)*)"|\\(.)|([\w.,:/@%+=()~^-]+)|(\$\{\w+\}|\$\w+)/y

/** Reads the words of a line as GRUB does. `fail` makes the error of what is more than a word. */
function wordsOf(
  line: string,
  variables: Readonly<Record<string, string>>,
  fail: (what: string) => Error
): string[] {
  const expand = (text: string) =>
    text.replace(/\\(["$\\])|\$(?:\{(\w+)\}|(\w+))/g, (_, kept?: string, braced?: string, bare = '') => {
      const name = braced ?? bare
      const value = kept ?? variables[name]
      if (value === undefined) throw fail(`variable ${name} is used`)
      return value
    })
  const words: string[] = []
  let word: string | undefined
  part.lastIndex = 0
  while (part.lastIndex < line.length) {
    const at = part.lastIndex
    const [all, blank, comment, single, double, escaped, plain, variable] = part.exec(line) ?? []
    if (all === undefined || (comment !== undefined && word !== undefined))
      throw fail(`"${line[at]}" stands outside of quotes`)
    if (comment !== undefined) break
    if (blank === undefined)
      word = (word ?? '') + (single ?? escaped ?? plain ?? expand(double ?? variable ?? ''))
    else if (word !== undefined) {
      words.push(word)
      word = undefined
    }
  }
  return word === undefined ? words : [...words, word]
}
