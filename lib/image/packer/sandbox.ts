import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { Held } from '../../program/held.js'
import { type ProgramError, run, searchPath } from '../../program/program.js'

export interface SandboxRequest {
  /** The image's directory: a path of one that is held open (disk/open-directory.ts), or one that nobody can change. */
  readonly tree: string
  /** Whether who asks has root's rights anyway: then the image's programs may run without a user namespace of their own. */
  readonly byRoot: boolean
  readonly signal: AbortSignal
  readonly timeLimitMs: number
  /** For the record: what of the sandbox this machine cannot give. */
  line(text: string): unknown
  readonly onLine: (text: string) => unknown
  readonly onErrorLine: (text: string) => unknown
}

/** The directory of the checkout or of the installed service, above dist/image/packer/ or lib/image/packer/. */
export const shipped = fileURLToPath(new URL('../../..', import.meta.url))
const script = (name: string) => `${shipped}libexec/${name}`

const namespaces = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child'].concat([
  ...['--net', '--ipc', '--uts']
])

/**
 * What is left of root's capabilities to an image's programs, as setpriv takes it. Debian's dracut and initramfs-tools need
 * the last one alone: ldconfig makes the initramfs its root. The others are for trees with files of other users, or with
 * a /boot that is not writable.
 */
const capabilities = '-all,+chown,+dac_override,+fowner,+sys_chroot'

/**
 * Root of the image's programs is this user of the controller, and the users after it are the others: none of them is anybody
 * here (hold-image.sh). The numbers of an image's files are shown to its programs as they are, up to the 2147483646th.
 */
const users = '0 2147483648 2147483647'

/** Until namespaces are there, which is a matter of milliseconds. */
const BEGIN_MS = 60_000

/**
 * Runs build-initramfs.sh with these arguments inside an image, by the image's own shell. Its programs may be anybody's
 * (rules 9.13): they see the image, with /proc, /dev, /run, /tmp of their own, and nothing else of this machine. They have
 * mount, process, network, IPC, host name and user namespaces of their own, the image as the only root (pivot_root), no
 * new privileges, and few capabilities. All that they started has ended when this resolves. Throws ProgramError.
 */
export async function runInImage(request: SandboxRequest, args: readonly string[]): Promise<void> {
  const { tree, byRoot, signal, timeLimitMs, line, onLine, onErrorLine } = request
  const limits = { signal, timeLimitMs: Math.min(BEGIN_MS, timeLimitMs) }
  const held = [await Held.start('unshare', ['--user', 'sh', script('hold-user.sh')], limits)]
  try {
    const usersFile = (await mapUsers(held[0] as Held, byRoot, line)) ? `/proc/${held[0]?.pid}/ns/user` : ''
    const words = [...namespaces, 'sh', script('hold-image.sh'), shipped, usersFile]
    const image = await Held.start('unshare', words, { ...limits, cwd: tree })
    held.push(image)
    for (let said = await image.line(); said !== 'moved'; said = await image.line()) line(said)
    const of = (what: string) => `/proc/${image.pid}/${what}`
    // By its own name the directory cannot be found, which the shell would complain of.
    const env = { PATH: searchPath(), LC_ALL: 'C', PWD: of('root') }
    // Programs and their libraries are this machine's until the last step; the working directory is the image.
    const place = [`--mount=${of('ns/mnt')}`, '--root=/', `--wd=${of('root')}`]
    // The old root lies over that of the image: no name is used for it.
    const umount = ['umount', '--no-canonicalize', '--internal-only', '--no-mtab', '--lazy', '.']
    await run('nsenter', [...place, '--', ...umount], { ...limits, env })
    image.tell()
    await image.line()
    const entered = [
      ...['--no-fork', `--pid=${of('ns/pid_for_children')}`, ...place],
      ...['net', 'ipc', 'uts'].map(name => `--${name}=${of(`ns/${name}`)}`)
    ]
    const enter = ['sh', script('enter-image.sh'), usersFile, capabilities]
    await run('nsenter', [...entered, '--', ...enter, ...args], {
      signal,
      timeLimitMs,
      onLine,
      onErrorLine,
      env
    })
  } finally {
    // With the first process of the process namespace, all others in it end.
    await Promise.all(held.map(one => one.end()))
  }
}

/**
 * Maps the users of the image's programs. Throws Error where the system gives no user namespace, and false where that is
 * not held to be needed: the capabilities that are left then reach as far as what can be seen.
 */
async function mapUsers(held: Held, byRoot: boolean, line: (text: string) => unknown): Promise<boolean> {
  try {
    await held.line()
    for (const map of ['uid_map', 'gid_map']) await writeFile(`/proc/${held.pid}/${map}`, users)
    return true
  } catch (error) {
    if ((error as ProgramError).why === 'aborted') throw error
    const { message } = error as Error
    if (!byRoot)
      throw new Error(
        `programs of the image can have no user namespace of their own (${message}), and would run as root of the controller: ` +
          'type sysctl user.max_user_namespaces=100000, or set initramfs = no in [image]'
      )
    line(`programs of the image run without a user namespace of their own: ${message}`)
    return false
  }
}
