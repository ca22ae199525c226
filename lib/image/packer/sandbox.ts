import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { resolveInside } from '../../disk/inside.js'
import { Held } from '../../program/held.js'
import { searchPath } from '../../program/locate.js'
import { type ProgramError, run } from '../../program/program.js'

export interface SandboxRequest {
  /** Real path of the image's directory. */
  readonly tree: string
  /** Words that run a program by which it follows no link in the place of the image; none: it follows them. */
  readonly linkless: readonly string[]
  readonly signal: AbortSignal
  readonly timeLimitMs: number
  /** For the record: what of the sandbox this machine cannot give. */
  line(text: string): void
  readonly onLine: (text: string) => void
  readonly onErrorLine: (text: string) => void
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

/** Until namespaces are there, which is a matter of milliseconds. */
const BEGIN_MS = 60_000

/**
 * Runs build-initramfs.sh with these arguments inside an image, by the image's own shell. Its programs may be anybody's
 * (rules 9.13): they see the image, with /proc, /dev, /run, /tmp of their own, and nothing else of this machine. They have
 * mount, process, network, IPC, host name and user namespaces of their own, the image as the only root (pivot_root), no
 * new privileges, and few capabilities. All that they started has ended when this resolves. Throws ProgramError.
 */
export async function runInImage(request: SandboxRequest, args: readonly string[]): Promise<void> {
  const { tree, linkless, signal, timeLimitMs, line, onLine, onErrorLine } = request
  const limits = { signal, timeLimitMs: Math.min(BEGIN_MS, timeLimitMs) }
  const modules = (await resolveInside(tree, 'usr/lib/dracut/modules.d')) ?? ''
  const words = [...namespaces, ...linkless, 'sh', script('hold-image.sh'), tree, shipped, modules]
  const [image, users] = await Promise.all([
    Held.start('unshare', words, limits),
    Held.start('unshare', ['--user', 'sh', script('hold-user.sh')], limits)
  ])
  try {
    const [mapped] = await Promise.all([mapUsers(users, line), image.line()])
    const of = (what: string) => `/proc/${image.pid}/${what}`
    const entered = [
      ...['--no-fork', `--mount=${of('ns/mnt')}`, `--pid=${of('ns/pid_for_children')}`],
      ...['net', 'ipc', 'uts'].map(name => `--${name}=${of(`ns/${name}`)}`),
      // Programs and their libraries are this machine's until the last step; the working directory is the image.
      ...['--root=/', `--wd=${of('root')}`]
    ]
    const enter = ['sh', script('enter-image.sh'), mapped ? `/proc/${users.pid}/ns/user` : '', capabilities]
    await run('nsenter', [...entered, '--', ...enter, ...args], {
      signal,
      timeLimitMs,
      onLine,
      onErrorLine,
      // By its own name the directory cannot be found, which the shell would complain of.
      env: { PATH: searchPath(), LC_ALL: 'C', PWD: of('root') }
    })
  } finally {
    // With the first process of the process namespace, all others in it end.
    await Promise.all([image.end(), users.end()])
  }
}

/**
 * Maps all users to themselves, as the files of an image belong to users of any number. False where the system gives no
 * user namespace: the capabilities that are left then reach as far as what can be seen.
 */
async function mapUsers(users: Held, line: (text: string) => void): Promise<boolean> {
  try {
    await users.line()
    for (const map of ['uid_map', 'gid_map']) await writeFile(`/proc/${users.pid}/${map}`, '0 0 4294967295')
    return true
  } catch (error) {
    if ((error as ProgramError).why === 'aborted') throw error
    line(`programs of the image run without a user namespace of their own: ${(error as Error).message}`)
    return false
  }
}
