import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { freePort } from '../support/free-port.js'
import { locate, output, programEnv, requirePrograms, requireRoot } from '../support/programs.js'
import { compareTrees } from './compare-trees.js'

/** What the tests of grab and push need. */
export function requireNode(): void {
  requireRoot()
  requirePrograms(
    'sshd',
    'ssh',
    'ssh-keygen',
    'rsync',
    'setpriv',
    'unshare',
    'nsenter',
    'setfacl',
    'getfattr',
    'setcap'
  )
}

/** Copies programs with the libraries they load into a tree. */
async function install(root: string, ...names: string[]): Promise<void> {
  for (const name of names) {
    const program = locate(name) as string
    const loads = (await output('ldd', [program])).matchAll(/(\/[^ ]+) \(0x/g)
    for (const file of [program, ...[...loads].map(([, library]) => library as string)]) {
      // /lib and /bin are links into /usr, as on every system of today.
      const path = file.replace(/^\/(bin|sbin|lib|lib64)\//, '/usr/$1/')
      await mkdir(join(root, dirname(path)), { recursive: true })
      await copyFile(file, join(root, path))
    }
  }
}

/** The root of a small system with an ssh server, rsync and a shell; `authorized`: the key root accepts. */
export async function makeSystem(root: string, authorized: string): Promise<void> {
  for (const path of ['proc', 'sys', 'dev', 'run/sshd', 'tmp', 'etc/ssh', 'root/.ssh', 'var/tmp', 'usr/bin'])
    await mkdir(join(root, path), { recursive: true, mode: 0o755 })
  await output('ln', ['-s', 'usr/bin', 'usr/sbin', 'usr/lib', 'usr/lib64', root])
  await install(root, 'sshd', 'rsync', 'dash', 'cat', 'sleep')
  await output('ln', ['-s', 'dash', join(root, 'usr/bin/sh')])
  await output('chmod', ['755', root])
  await output('chmod', ['1777', join(root, 'tmp'), join(root, 'var/tmp')])
  const files: Record<string, string> = {
    'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n',
    'etc/group': 'root:x:0:\n',
    'etc/hostname': 'node001\n',
    'etc/motd': 'first\n',
    'etc/ssh/sshd_config': 'AuthorizedKeysFile /root/.ssh/authorized_keys\n',
    'root/.ssh/authorized_keys': authorized
  }
  for (const [path, text] of Object.entries(files)) await writeFile(join(root, path), text)
  for (const type of ['ed25519', 'ecdsa']) await makeHostKey(root, type)
}

/** A host key of a type for the system in `root`, in place of the one it has. */
export async function makeHostKey(root: string, type: string): Promise<void> {
  const file = join(root, `etc/ssh/ssh_host_${type}_key`)
  await rm(file, { force: true })
  await output('ssh-keygen', ['-q', '-t', type, '-N', '', '-f', file])
}

/** A node that runs: a system in its own mount and process namespaces, its ssh server on a loopback port. */
export interface RunningNode {
  readonly root: string
  readonly port: number
  /** Runs a shell script where the node's mounts are seen, its root being the current directory. */
  inside(script: string): Promise<string>
  stop(): Promise<void>
}

// The ssh server sees nothing but the tree: whatever is pushed cannot reach the machine the test runs on. It
// ends with the test, kill -9 included.
const start = `set -e
root=$1 port=$2
shift 2
mount --bind "$root" "$root"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in 'null 3' 'zero 5' 'urandom 9'; do
  mknod -m 666 "$root/dev/\${device% *}" c 1 "\${device#* }"
done
mount -t proc proc "$root/proc"
for path; do mount -t tmpfs -o mode=755 node "$root$path"; done
cd /
exec chroot "$root" /usr/sbin/sshd -D -e -p "$port" -o ListenAddress=127.0.0.1 -o PidFile=none
`

/**
 * Starts the system in `root`, with an empty file system of its own at each path of `mounts`, in their order.
 */
export async function startNode(
  t: Test,
  root: string,
  mounts: readonly string[] = [],
  port?: number
): Promise<RunningNode> {
  const taken = port ?? (await freePort())
  const apart = ['--pdeathsig', 'KILL', 'unshare', '--mount', '--pid', '--fork', '--kill-child']
  const child = spawn('setpriv', [...apart, 'sh', '-c', start, 'node', root, `${taken}`, ...mounts], {
    env: programEnv(),
    stdio: ['ignore', 'ignore', 'pipe']
  })
  // Its standard error is closed when the last of its processes is gone.
  const gone = once(child, 'close')
  const stop = async () => {
    // SIGTERM it ignores; the others go with it.
    child.kill('SIGKILL')
    await gone
  }
  t.teardown(stop)
  await listening(child)
  const [inner = ''] = (await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')).split(' ')
  const inside = (script: string) =>
    output('nsenter', [
      '--target',
      inner,
      '--mount',
      'sh',
      '-c',
      'cd "$1" || exit; eval "$2"',
      '',
      root,
      script
    ])
  return { root, port: taken, inside, stop }
}

/** Resolves when the ssh server takes connections. */
async function listening(child: ChildProcess): Promise<void> {
  let said = ''
  await new Promise<void>((resolve, reject) => {
    child.stderr?.on('data', bytes => {
      said += bytes
      if (said.includes('Server listening')) resolve()
    })
    child.once('close', () => reject(new Error(`the node's ssh server did not start: ${said}`)))
  })
}

/** What a job hears, gathered. */
export function listener() {
  const lines: string[] = []
  const changes: string[] = []
  const fractions: number[] = []
  return {
    lines,
    changes,
    fractions,
    line: (text: string) => void lines.push(text),
    change: (text: string) => void changes.push(text),
    progress: (fraction: number) => void fractions.push(fraction)
  }
}

/**
 * Puts the times of everything but files into the past: where a copy is made within the same second, rsync
 * leaves them as they are.
 */
export async function age(tree: string): Promise<void> {
  const touch = ['-exec', 'touch', '--no-dereference', '--date=2020-02-02 02:02:02.5 UTC', '{}', '+']
  await output('find', [tree, '-xdev', '-depth', '-not', '-type', 'f', ...touch])
}

/** Remembers a tree as it is; the function that comes back tells how it differs from that since. */
export async function remember(tree: string): Promise<() => Promise<string[]>> {
  const before = await mkdtemp(`${tree}-before-`)
  await output('cp', ['-a', '-x', '-T', '--sparse=never', tree, before])
  return () => compareTrees(before, tree, { holes: false })
}
