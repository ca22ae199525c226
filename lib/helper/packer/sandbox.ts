import { writeFile } from 'node:fs/promises'
import { isatty } from 'node:tty'
import { fileURLToPath } from 'node:url'
import { HeldProgram, startAttached } from '../../program/held-program.js'
import { type Course, type ProgramError, run, searchPath } from '../../program/program.js'

/** A request to run programs of an image in a sandbox. */
interface ProgramRequest extends Course {
  /** The image's directory: the path of one that is held open, or one that nobody can change. */
  readonly tree: string
  /** Whether the caller has root's rights anyway: programs may then run without a user namespace. */
  readonly byRoot: boolean
}

interface SandboxRequest extends ProgramRequest {
  readonly onLine: (text: string) => unknown
  readonly onErrorLine: (text: string) => unknown
}

/** The directory of the checkout or of the installed service. */
export const shipped = fileURLToPath(new URL('../../..', import.meta.url))
const script = (name: string) => `${shipped}libexec/${name}`

const namespaces = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child'].concat([
  ...['--net', '--ipc', '--uts']
])

/**
 * Capabilities that an image's programs keep. Its tools need only the last: ldconfig makes the initramfs its
 * root. The others serve files of other users, and a /boot that is not writable.
 */
const capabilities = '-all,+chown,+dac_override,+fowner,+sys_chroot'

/** The installation of packages needs these too. */
const ofPackages = '+fsetid,+kill,+setgid,+setuid,+setfcap'

/**
 * Maps root and all other users of the image's programs to users of the controller that nobody is
 * (hold-image.sh). The programs see the owners of the image's files as they are, up to number 2147483646.
 */
const idMap = '0 2147483648 2147483647'

/** Time limit for the set-up of namespaces, which takes milliseconds. */
const SETUP_LIMIT_MS = 60_000

/**
 * Runs build-initramfs.sh inside an image, by the image's own shell. Its programs are not trusted (rules
 * 9.13): they see the image alone, as the only root (pivot_root), in namespaces of their own, with no new
 * privileges and few capabilities. All have ended when this resolves. Throws ProgramError.
 */
export async function runInImage(request: SandboxRequest, args: readonly string[]): Promise<void> {
  const { signal, timeLimitMs, onLine, onErrorLine } = request
  const script = ['/bin/sh', '/tmp/svc/libexec/build-initramfs.sh', ...args]
  await inNamespaces(request, '', capabilities, script, async (words, env) => {
    await run('nsenter', words, { signal, timeLimitMs, onLine, onErrorLine, env })
  })
}

/** The image keeps no history. Its own files may set the prompt of bash, so the name is added each time. */
const startShell = `export HISTFILE=/dev/null SVC_IMAGE="$1" PS1="($1) # "
export PROMPT_COMMAND='case $PS1 in *"($SVC_IMAGE)"*) ;; *) PS1="($SVC_IMAGE) $PS1" ;; esac'
[ ! -x /bin/bash ] || exec /bin/bash -l
exec /bin/sh -l`

/**
 * Opens a shell in an image at this process's streams; returns its exit status. It is confined as a build is,
 * but has a way out to the network (hold-network.sh), and packages start no service (hold-image.sh). Throws
 * ProgramError.
 */
export function shellInImage(request: ProgramRequest, image: string, banner: string): Promise<number> {
  const shell = ['/bin/sh', '-c', startShell, 'sh', image]
  return inNamespaces(request, 'shell', `${capabilities},${ofPackages}`, shell, async (words, env) => {
    request.line(banner)
    const isTerminal = [0, 1, 2].some(isatty)
    // A program with the admin's terminal could type into the admin's shell: script(1) gives another one.
    const [program, args] = isTerminal
      ? ['script', ['-qec', "set -f; IFS='\x1f'; exec $SVC_WORDS", '/dev/null']]
      : ['nsenter', words]
    const more = { SVC_WORDS: ['nsenter', ...words].join('\x1f'), SHELL: '/bin/sh', TERM: process.env.TERM }
    const { child, ended } = startAttached(program, args, ['inherit', 'inherit', 'inherit'], {
      ...{ env: { ...env, ...more }, detached: !isTerminal }
    })
    // The shell ends first, so that its mounts in the image go.
    const end = (signal: NodeJS.Signals) =>
      child.pid && process.kill(isTerminal ? child.pid : -child.pid, signal)
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, end)
    return (await ended) ?? 1
  })
}

/** Makes an image the root of namespaces. `work` gets the words of nsenter that run a program in them. */
async function inNamespaces<T>(
  request: ProgramRequest,
  kind: '' | 'shell',
  left: string,
  program: readonly string[],
  work: (words: string[], env: NodeJS.ProcessEnv) => Promise<T>
): Promise<T> {
  const { tree, byRoot, signal, timeLimitMs, line } = request
  const limits = { signal, timeLimitMs: Math.min(SETUP_LIMIT_MS, timeLimitMs) }
  const users = await HeldProgram.start('unshare', ['--user', 'sh', script('hold-user.sh')], limits)
  const held = [users]
  try {
    const usersFile = (await mapUsers(users, byRoot, line)) ? `/proc/${users.pid}/ns/user` : ''
    const words = [...namespaces, 'sh', script('hold-image.sh'), shipped, usersFile, kind]
    const image = await HeldProgram.start('unshare', words, { ...limits, cwd: tree })
    held.push(image)
    for (let said = await image.line(); said !== 'moved'; said = await image.line()) line(said)
    const of = (what: string) => `/proc/${image.pid}/${what}`
    // The shell would complain of a working directory that its name does not lead to.
    const env = { PATH: searchPath(), LC_ALL: 'C', PWD: of('root') }
    // The programs are this machine's until the last step; the working directory is the image.
    const place = [`--mount=${of('ns/mnt')}`, '--root=/', `--wd=${of('root')}`]
    // The old root lies over that of the image: no name is used for it.
    const umount = ['umount', '--no-canonicalize', '--internal-only', '--no-mtab', '--lazy', '.']
    await run('nsenter', [...place, '--', ...umount], { ...limits, env })
    image.sendLine()
    await image.line()
    if (kind === 'shell') {
      const network = await HeldProgram.start('sh', [script('hold-network.sh'), String(image.pid)], limits)
      held.push(network)
      await network.line()
    }
    const entered = [
      ...['--no-fork', `--pid=${of('ns/pid_for_children')}`, ...place],
      ...['net', 'ipc', 'uts'].map(name => `--${name}=${of(`ns/${name}`)}`)
    ]
    const enter = ['env', `PWD=${of('root')}`, 'sh', script('enter-image.sh'), usersFile, left]
    return await work([...entered, '--', ...enter, ...program], env)
  } finally {
    // All processes of the namespace end with its first one.
    await Promise.all(held.map(one => one.end()))
  }
}

/** Maps the users of the programs. Without user namespaces: false for root's orders, else Error. */
async function mapUsers(held: HeldProgram, byRoot: boolean, line: Course['line']): Promise<boolean> {
  try {
    await held.line()
    for (const map of ['uid_map', 'gid_map']) await writeFile(`/proc/${held.pid}/${map}`, idMap)
    return true
  } catch (error) {
    if ((error as ProgramError).kind === 'aborted') throw error
    const { message } = error as Error
    if (!byRoot)
      throw new Error(
        `programs of the image can have no user namespace of their own (${message}), ` +
          'and would run as root of the controller: type sysctl user.max_user_namespaces=100000, ' +
          'or set initramfs = no in [image]'
      )
    line(`programs of the image run without a user namespace of their own: ${message}`)
    return false
  }
}
