import { hash } from 'node:crypto'
import { commandLine, GrubError, straightCommands } from './words.js'

/** The measurements of GRUB when a node boots as its present configuration says, in their order. */
export interface MeasuredBoot {
  /**
   * PCR 8: the text of each command with its arguments (behind "grub_cmd: " in the log), and of the kernel's
   * command line (behind "kernel_cmdline: "). GRUB extends the PCR by the SHA-256 of the text.
   */
  readonly commands: readonly { readonly what: 'grub_cmd' | 'kernel_cmdline'; readonly text: string }[]
  /**
   * PCR 4, behind the firmware's own events: SHA-256 in hex of each program without its signatures, once,
   * however often it was measured in a row.
   */
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
export function measuredBoot({
  server,
  mac,
  platform,
  common,
  node,
  programs,
  file
}: Measured): MeasuredBoot {
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
