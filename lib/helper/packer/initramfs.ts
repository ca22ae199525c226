import { type Course, ProgramError } from '../../program/program.js'
import { runInImage } from './sandbox.js'

export interface InitramfsRequest extends Course {
  /** The image's directory: the path of one that is held open, or one that nobody can change. */
  readonly tree: string
  /** Whether the caller has root's rights anyway (sandbox.ts); default: no. */
  readonly byRoot?: boolean
  /** Its name in /lib/modules of the image. */
  readonly kernelversion: string
  /** Modules of dracut that are added to ours. One that begins with `-` or `!` is left out instead. */
  readonly dracutmodules: readonly string[]
  /** Kernel modules that are added to the usual ones, or left out in the same way. */
  readonly kernelmodules: readonly string[]
}

export interface Initramfs {
  readonly tool: 'dracut' | 'initramfs-tools'
  /** Path below the tree, `boot/…`. */
  readonly initrd: string
}

const name = /^[A-Za-z0-9][A-Za-z0-9._+~-]*$/

/**
 * Builds the initramfs inside an image, with the image's own tool and the node's side (docs/node-side.md),
 * for machines of any kind, by the name that its boot loader looks for. The file appears whole. Returns
 * undefined without a tool. Throws Error naming the field, and ProgramError.
 */
export async function buildInitramfs(request: InitramfsRequest): Promise<Initramfs | undefined> {
  const { tree, byRoot = false, kernelversion, signal, timeLimitMs, line } = request
  checkName('kernelversion', kernelversion, 'kernel')
  const modules = addedAndOmitted('dracutmodules', request.dracutmodules)
  const drivers = addedAndOmitted('kernelmodules', request.kernelmodules)
  const said = new Map<string, string>()
  const onLine = (text: string) => {
    const [, key = '', value = ''] = /^(note|tool|kernel|initrd) (.*)$/.exec(text) ?? []
    if (key === 'note') return line(value)
    if (key !== '') said.set(key, value)
  }
  const sandbox = { tree, byRoot, signal, timeLimitMs, line, onLine, onErrorLine: line }
  await runInImage(sandbox, [kernelversion, ...modules, ...drivers]).catch(error => {
    throw error instanceof ProgramError ? named(error, said.get('tool')) : error
  })
  const [tool, initrd] = [said.get('tool'), said.get('initrd')]
  if (tool === 'none') return undefined
  if ((tool !== 'dracut' && tool !== 'initramfs-tools') || initrd === undefined)
    throw new Error('the initramfs was not built: its script ended without a word of it')
  return { tool, initrd }
}

/** Names a failure after the tool that failed, not after the program that started it. */
function named(error: ProgramError, tool: string | undefined): Error {
  if (error.kind === 'missing') return error
  const words = error.message.slice(error.message.indexOf(' ') + 1)
  return Object.assign(new Error(`the initramfs (${tool ?? 'no tool yet'}) ${words}`), { cause: error })
}

function checkName(field: string, text: string, kind: 'kernel' | 'module'): void {
  if (!name.test(text)) throw new Error(`${field}: ${JSON.stringify(text)} is no name of a ${kind}`)
}

/** Returns two arguments of the script: the words to add, and the words to leave out. */
function addedAndOmitted(field: string, words: readonly string[]): [string, string] {
  const bare = (word: string) => word.replace(/^[-!]/, '')
  for (const word of words) checkName(field, bare(word), 'module')
  const omitted = words.filter(word => word !== bare(word)).map(bare)
  return [words.filter(word => word === bare(word)).join(' '), omitted.join(' ')]
}
