import { type Omissions, OTHER_FILESYSTEM, SOCKETS } from './packer.js'

/**
 * Reads the standard error of GNU tar (LC_ALL=C) and its compressor, line by line: checkpoints
 * (`#<records>`), files that tar leaves out without failing, and the rest, which goes to `line`.
 */
export class TarMessages {
  #ofTar: string | undefined
  #ofCompressor: string | undefined
  #isCompressorsFault = false

  constructor(
    readonly omitted: Omissions,
    readonly checkpoint: (records: number) => void,
    readonly line: (text: string) => unknown
  ) {}

  /** Takes a line; returns the result of `line`. */
  add(text: string): unknown {
    // tar calls itself by the path that it was started with.
    const said = /^(?:[^:]*\/)?tar: (.*)$/.exec(text)?.[1]
    if (said === undefined) {
      this.#ofCompressor ??= text
      return this.line(text)
    }
    const records = /^#(\d+)$/.exec(said)?.[1]
    const left = leftOut(said)
    if (records !== undefined) this.checkpoint(Number(records))
    else if (left !== undefined) this.omitted.add(...left)
    else return this.#say(said)
  }

  #say(said: string): unknown {
    if (/^Child (returned status|died with signal) /.test(said)) this.#isCompressorsFault = true
    if (!said.includes(': Warning: ')) this.#ofTar ??= explained(said)
    return this.line(`tar: ${said}`)
  }

  /** Why tar failed, if it did: its first message, as the last one only says that it failed. */
  get reason(): string | undefined {
    const words = [this.#ofTar, this.#ofCompressor]
    return (this.#isCompressorsFault ? words.reverse() : words).find(text => text !== undefined)
  }
}

/** Without a compressor that says it, a short write is the only sign of a full disk. */
const explained = (said: string) =>
  /^-: Wrote only \d+ of \d+ bytes$/.test(said) ? `${said}: no space left on device` : said

function leftOut(said: string): [kind: string, name: string] | undefined {
  const socket = /^(.+): socket ignored$/.exec(said)?.[1]
  if (socket !== undefined) return [SOCKETS, socket]
  const directory = /^(.+?)\/?: file is on a different filesystem; not dumped$/.exec(said)?.[1]
  if (directory !== undefined) return [OTHER_FILESYSTEM, directory]
  const support = /^(.+) support is not available$/.exec(said)?.[1]
  return support === undefined ? undefined : ['what this tar was built without is not carried', support]
}
