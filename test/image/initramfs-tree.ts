import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { scratch } from '../support/scratch.js'

/**
 * What stands for dracut and mkinitramfs in an image without either: writes down how it was called and what
 * it saw to /var/seen, then does what /etc/behaviour says: fail, hang (after making /var/hanging), or make
 * the file.
 */
const tool = `#!/bin/sh
{
  printf 'argument:%s\\n' "$@"
  ls "\${dracutbasedir:-/usr/lib/dracut}/modules.d" | sed 's/^/module:/'
  [ "$1" != -d ] || (cd "$2" && find . -type f | sort | sed 's/^/configuration:/' && cat conf.d/zz-svc)
  echo "drivers:$SVC_KERNELMODULES"
  ls /sys/class/net | sed 's/^/interface:/'
  cat /boot/config-* 2>/dev/null | sed 's/^/config:/'
  ls /dev | sed 's/^/device:/'
  (echo 1 >/proc/sys/vm/drop_caches) 2>/dev/null && echo 'writes settings'
  ls -d /proc/[0-9]* | wc -l | sed 's/^/processes:/'
} >/var/seen 2>&1
for file in "$@"; do
  case $file in
    /tmp/svc/initrd) out=$file ;;
  esac
done
echo 'the tool begins' >&2
case $(cat /etc/behaviour) in
  fail) echo 'half' >"$out"; echo 'No space left on device' >&2; exit 3 ;;
  hang) touch /var/hanging; sleep 1000 & sleep 1000 ;;
  nothing) exit 0 ;;
esac
echo 'an initramfs' >"$out"
`

export const kernel = '6.1.0-9-test'

/**
 * A directory that serves as an image: all busybox, with a stand-in for the tool that builds an initramfs.
 */
export class Tree {
  readonly path: string

  constructor(t: Test, which: 'dracut' | 'mkinitramfs' | 'none', name = 'image') {
    const directory = scratch(t)
    this.path = join(directory, name)
    for (const path of [
      'bin',
      'boot',
      'dev',
      'proc',
      'run',
      'sys',
      'tmp',
      'var',
      'usr/lib/dracut/modules.d/99base'
    ])
      mkdirSync(join(this.path, path), { recursive: true })
    for (const path of [
      `lib/modules/${kernel}/kernel`,
      'lib/modules/6.1.0-10-removed',
      'etc/initramfs-tools/scripts'
    ])
      mkdirSync(join(this.path, path), { recursive: true })
    this.write('etc/initramfs-tools/initramfs.conf', 'MODULES=dep\n')
    execFileSync('cp', ['/bin/busybox', join(this.path, 'bin/busybox')])
    for (const applet of execFileSync('busybox', ['--list'], { encoding: 'utf8' }).trim().split('\n'))
      if (applet !== 'busybox') symlinkSync('busybox', join(this.path, 'bin', applet))
    this.program('modprobe', '#!/bin/sh\nfor module in "$@"; do :; done\n[ "$module" != absent ]\n')
    if (which !== 'none') this.program(which, tool)
    this.behave('')
  }

  write(path: string, text: string): void {
    mkdirSync(dirname(join(this.path, path)), { recursive: true })
    writeFileSync(join(this.path, path), text)
  }

  program(name: string, text: string): void {
    const path = join(this.path, 'bin', name)
    execFileSync('rm', ['-f', path])
    writeFileSync(path, text)
    chmodSync(path, 0o755)
  }

  /** A program of this machine, with its libraries. */
  install(name: string): void {
    const words = [
      '-c',
      'for f in $(ldd "$(command -v "$0")" | grep -o "/[^ ]*") "$(command -v "$0")"; do echo "$f"; done',
      name
    ]
    const files = execFileSync('sh', words, { encoding: 'utf8' }).trim().split('\n')
    for (const file of files) {
      mkdirSync(dirname(join(this.path, file)), { recursive: true })
      execFileSync('cp', ['--dereference', file, join(this.path, file)])
    }
  }

  behave(how: '' | 'fail' | 'hang' | 'nothing'): void {
    this.write('etc/behaviour', how)
  }

  read(path: string): string {
    return readFileSync(join(this.path, path), 'utf8')
  }

  list(path: string): string[] {
    return readdirSync(join(this.path, path)).sort()
  }

  /** What the tool saw, of one kind. */
  seen(kind: string): string[] {
    const lines = this.read('var/seen').split('\n')
    return lines.filter(line => line.startsWith(`${kind}:`)).map(line => line.slice(kind.length + 1))
  }

  /** Resolves when the tool is at work; `ended` is what ends first if it never is. */
  async hanging(): Promise<void> {
    while (!this.list('var').includes('hanging')) await sleep(20)
  }

  /** Resolves when no process has the tree as its root. */
  async quiet(): Promise<void> {
    while (this.inside().length > 0) await sleep(20)
  }

  /** The processes of other mount namespaces in which something of the tree is mounted. */
  inside(): string[] {
    const ours = readlinkSync('/proc/self/ns/mnt')
    const mounted = `/${basename(dirname(this.path))}/${basename(this.path)}/`
    return readdirSync('/proc').filter(pid => {
      try {
        return (
          /^\d+$/.test(pid) &&
          readlinkSync(`/proc/${pid}/ns/mnt`) !== ours &&
          readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(mounted)
        )
      } catch {
        return false
      }
    })
  }
}
