import { hash } from 'node:crypto'

/** The measurements of GRUB when a node boots as its present configuration says, in their order. */
export interface MeasuredBoot {
  /**
   * PCR 8: the text of each command with its arguments (behind "grub_cmd: " in the log), and of the kernel's
   * command line (behind "kernel_cmdline: "). GRUB extends the PCR by the SHA-256 of the text.
   */
  readonly commands: readonly { readonly what: 'grub_cmd' | 'kernel_cmdline'; readonly text: string }[]
  /** PCR 4, behind the firmware's: SHA-256 in hex without signatures; repeats in a row count once. */
  readonly programs: readonly MeasuredFile[]
  /** PCR 9: SHA-256 in hex of each file. `what`: for people; `name`: as GRUB names it. */
  readonly files: readonly MeasuredFile[]
}

export interface MeasuredFile {
  readonly what: string
  readonly name: string
  readonly sha256: string
}

/** A kernel or an initramfs. */
interface Content {
  /** Its name for people. */
  readonly name?: string
  readonly sha256: string
  /** SHA-256 of a kernel without its signatures, in hex. */
  readonly program?: string
}

/** A configuration, and the path by which GRUB is told to read it. */
interface Config {
  readonly path: string
  readonly text: string
}

interface Measured {
  /** IPv4 address of the TFTP server, as DHCP names it. */
  readonly server: string
  readonly mac: string
  /** Name of GRUB's platform: its first script looks for a directory of this name. */
  readonly platform: 'x86_64-efi' | 'arm64-efi'
  readonly common: Config
  readonly node: Config
  /** shim and GRUB. */
  readonly programs: readonly MeasuredFile[]
  /** Returns the kernel or the initramfs at a path; undefined if it is neither. */
  readonly file: (path: string) => Content | undefined
}

/** The variables that the common configuration makes of the MAC, one for each of its bytes. */
const bytesOf = (mac: string) =>
  Object.fromEntries(mac.split(':').map((byte, i) => [`m${i + 1}`, byte.toLowerCase()]))

/**
 * Computes what Debian's signed GRUB measures of a boot from the network. Its own first script, in the
 * binary, looks for a configuration of the platform and then reads the common one; that one reads the node's.
 * Throws GrubError when a configuration is no plain list of commands.
 */
export function measuredBoot(measured: Measured): MeasuredBoot {
  const { server, mac, platform, common, node, programs, file } = measured
  const prefix = `(tftp,${server})/grub`
  const commands: { what: 'grub_cmd' | 'kernel_cmdline'; text: string }[] = [
    { what: 'grub_cmd', text: `[ -e ${prefix}/${platform}/grub.cfg ]` },
    { what: 'grub_cmd', text: `source ${prefix}/grub.cfg` }
  ]
  const files: MeasuredFile[] = []
  const kernels: MeasuredFile[] = []
  const read = (what: string, name: string, text: string) =>
    files.push({ what, name, sha256: hash('sha256', text) })
  const known = { ...bytesOf(mac), net_default_mac: mac, net_default_server: server }
  read('the common grub.cfg', `${prefix}/grub.cfg`, common.text)
  const path = run(common, 'configfile', known, words => void commands.push(plain(words)))
  if (path !== node.path) throw new GrubError(`the common grub.cfg reads ${path} and not ${node.path}`)
  read('the grub.cfg of the node', node.path, node.text)
  run(node, 'boot', { net_default_mac: mac, net_default_server: server }, words => {
    commands.push(plain(words))
    const [command, ...rest] = words
    if (command !== 'linux' && command !== 'initrd') return
    for (const name of command === 'linux' ? rest.slice(0, 1) : rest) {
      const found = file(name)
      if (!found) throw new GrubError(`${name} is no kernel or initramfs that svcd has put there`)
      const kind = command === 'linux' ? 'the kernel' : 'the initramfs'
      const what = found.name === undefined ? kind : `${kind} ${found.name}`
      files.push({ what, name, sha256: found.sha256 })
      if (command === 'initrd') continue
      if (found.program === undefined) throw new GrubError(`${what} is no program for UEFI`)
      kernels.push({ what: 'the kernel', name: found.name ?? name, sha256: found.program })
    }
    if (command === 'linux') commands.push({ what: 'kernel_cmdline', text: commandLine(rest) })
  })
  return { commands, programs: [...programs, ...kernels], files }
}

const plain = (words: readonly string[]) => ({ what: 'grub_cmd' as const, text: words.join(' ') })

/** Calls `each` with the commands of a configuration up to `last`, whose argument it returns. */
function run(
  { path, text }: Config,
  last: string,
  known: Readonly<Record<string, string>>,
  each: (words: readonly string[]) => void
): string | undefined {
  for (const words of straightCommands(text, known, path)) {
    each(words)
    if (words[0] === last) return words[1]
  }
  throw new GrubError(`${path} has no command ${last}`)
}

/** Thrown for a script or an argument that GRUB does not take, or whose measurement is not known. */
export class GrubError extends Error {}

/** Quotes a text as one word of a GRUB command. Throws GrubError for what is not printable ASCII. */
export function quoted(text: string): string {
  if (/[^\x20-\x7e]/.test(text))
    throw new GrubError(`${JSON.stringify(text)} has a character that GRUB does not take`)
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(text)) return text
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** Splits a kernel command line at blanks outside of double quotes, which it drops. Throws GrubError. */
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

/** Yields the words of each command of a GRUB script. Throws GrubError where it is no straight line. */
export function* straightCommands(script: string, variables: Readonly<Record<string, string>>, name: string) {
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
function wordsOf(line: string, variables: Readonly<Record<string, string>>, fail: (what: string) => Error) {
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
