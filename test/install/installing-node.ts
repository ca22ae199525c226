import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { busyboxApplets, NodeRoot, type Shell } from '../support/node-root.js'

/**
 * Busybox ash runs each case: it is the strictest, and forks the fastest. bash takes twice the time, so it runs one
 * case for each part of the install script, and all of them in the long tests.
 */
export const shells: readonly Shell[] = ['bash', 'ash']
/** Whether a shell runs the variants of a case too. */
export const everyCase = (shell: Shell): boolean => shell === 'ash' || process.env.SVCD_LONG !== undefined
export const allShells: readonly Shell[] = ['bash', 'ash', 'dash', 'klibc']

export interface Run {
  readonly status: number
  /** Console output, standard output and error together. */
  readonly output: string
  /** /proc/mounts as it was afterwards. */
  readonly mounts: string
}

export interface Setup {
  readonly shell: Shell
  /** Programs that this machine has not. */
  readonly without?: readonly string[]
  /** Shell scripts that stand in for programs. */
  readonly programs?: Readonly<Record<string, string>>
  /** SVC_ variables as the initramfs would set them. */
  readonly environment?: Readonly<Record<string, string>>
}

const interpreters: Record<Shell, string> = {
  bash: '/usr/bin/bash',
  ash: '/tools/busybox ash',
  dash: '/usr/bin/dash',
  klibc: '/usr/lib/klibc/bin/sh'
}
const systemTools = ['curl', 'tar', 'gzip', 'bzip2', 'xz', 'zstd', 'openssl', 'wget', 'base64', 'dash']
const environment = { SVC_BOOTIF: 'lo', SVC_BOOTPROTO: 'static', SVC_MAC: '52:54:00:00:00:01' }

/**
 * The initramfs of a node: a root directory of its own, with the system's /usr read-only, entered by chroot
 * in a private mount namespace. The script is run as shipped; /sysroot and /svctmp are the machine's own.
 */
export class InstallingNode extends NodeRoot {
  readonly #setup: Setup

  constructor(t: Test, setup: Setup) {
    requirements()
    super(t)
    this.#setup = setup
    this.mkdir('usr', 'proc', 'dev', 'sys', 'run', 'etc', 'tools')
    this.link(
      '',
      ['bin', 'sbin', 'lib', 'lib64'].map(name => [name, `usr/${name}`])
    )
    this.#tools()
  }

  /** Path on the host of a path in what the runs left in /sysroot. */
  image(path: string): string {
    return join(this.root, 'result', path)
  }

  read(path: string): string {
    return readFileSync(this.image(path), 'utf8')
  }

  /** Runs scripts one after the other on this machine, as if the caller had asked again. */
  async run(...scripts: string[]): Promise<Run[]> {
    scripts.forEach((script, i) => {
      this.write(`script${i}`, script, 0o755)
    })
    const interpreter = interpreters[this.#setup.shell]
    const variables = Object.entries({ ...environment, ...this.#setup.environment }).map(e => e.join('='))
    const child = spawn(
      'unshare',
      ['--mount', '--propagation', 'private', 'sh', '-eu', '-c', inside, 'sh', this.root, interpreter].concat(
        String(scripts.length),
        variables
      ),
      { stdio: ['ignore', 'pipe', 'pipe'] }
    )
    let trouble = ''
    child.stdout.on('data', data => (trouble += data))
    child.stderr.on('data', data => (trouble += data))
    const [status] = (await once(child, 'close')) as [number]
    if (status !== 0)
      throw new Error(`the machine itself failed (root and unshare --mount needed): ${trouble}`)
    return scripts.map((_, i) => ({
      status: Number(readFileSync(join(this.root, `status${i}`), 'utf8')),
      output: readFileSync(join(this.root, `output${i}`), 'utf8'),
      mounts: readFileSync(join(this.root, `mounts${i}`), 'utf8')
    }))
  }

  #tools(): void {
    const { shell, without = [], programs: given = {} } = this.#setup
    // Without it the script waits a second for each disk.
    const programs = without.includes('udevadm') ? given : { udevadm: 'exit 0', ...given }
    const tools = busyboxApplets('/tools/busybox')
    if (shell !== 'ash') for (const name of systemTools) tools.set(name, `/usr/bin/${name}`)
    tools.set('busybox', '/usr/bin/busybox')
    for (const name of [...without, ...Object.keys(programs)]) tools.delete(name)
    this.link('tools', tools)
    for (const [name, text] of Object.entries(programs))
      this.write(`tools/${name}`, `#!/bin/sh\n${text}\n`, 0o755)
  }
}

const inside = `
root=$1 interpreter=$2 count=$3
shift 3
mount --bind /usr "$root/usr"
mount -o remount,ro,bind "$root/usr"
mount -t proc proc "$root/proc"
if [ -e "$root/cmdline" ]; then
  mount --bind "$root/cmdline" "$root/proc/cmdline"
fi
touch "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
i=0
while [ "$i" -lt "$count" ]; do
  status=0
  chroot "$root" /usr/bin/env -i PATH=/tools "$@" $interpreter "/script$i" \\
    </dev/null >"$root/output$i" 2>&1 || status=$?
  echo "$status" >"$root/status$i"
  chroot "$root" /usr/bin/cat /proc/mounts >"$root/mounts$i"
  i=$((i + 1))
done
if grep -q " $root/svctmp " /proc/mounts; then
  cp -a -x "$root/svctmp" "$root/left"
  umount "$root/svctmp"
  cp -a "$root/left/." "$root/svctmp"
  rm -rf "$root/left"
fi
rm -rf "$root/result"
if [ -d "$root/sysroot" ]; then
  # Only the image: a /proc or /dev that the script failed to unmount has no end.
  cp -a -x "$root/sysroot" "$root/result"
fi
`

function requirements(): void {
  if (process.getuid?.() !== 0) throw new Error('the install script is run in a mount namespace: run as root')
  const packages = { busybox: 'busybox-static', curl: 'curl', dash: 'dash', openssl: 'openssl', wget: 'wget' }
  const missing = Object.entries({ ...packages, zstd: 'zstd', xz: 'xz-utils', bzip2: 'bzip2' })
    .filter(([program]) => !existsSync(`/usr/bin/${program}`) && !existsSync(`/bin/${program}`))
    .map(([, name]) => name)
  if (!existsSync(interpreters.klibc)) missing.push('klibc-utils')
  if (missing.length) throw new Error(`programs are missing: apt-get install ${missing.join(' ')}`)
}
