import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { scratch } from './scratch.js'

/**
 * A shell that an initramfs may have; with `ash` all is busybox, `klibc` is the sh of one without busybox.
 */
export type Shell = 'bash' | 'dash' | 'ash' | 'klibc'

/** The root directory of a node's initramfs on this machine, to be entered by chroot. Needs root. */
export class NodeRoot {
  readonly root: string

  constructor(t: Test) {
    this.root = scratch(t)
  }

  mkdir(...paths: string[]): void {
    for (const path of paths) mkdirSync(join(this.root, path), { recursive: true })
  }

  write(path: string, content: string | Buffer, mode = 0o644): void {
    this.mkdir(dirname(path))
    writeFileSync(join(this.root, path), content)
    chmodSync(join(this.root, path), mode)
  }

  text(path: string): string {
    return readFileSync(join(this.root, path), 'utf8')
  }

  has(path: string): boolean {
    return existsSync(join(this.root, path))
  }

  /** Makes symbolic links: name → where it leads on the node. */
  link(directory: string, links: Iterable<readonly [name: string, target: string]>): void {
    for (const [name, target] of links) symlinkSync(target, join(this.root, directory, name))
  }
}

let applets: readonly string[] | undefined

/** The programs of an initramfs: every applet that busybox, which stands at `path` there, has. */
export function busyboxApplets(path: string): Map<string, string> {
  applets ??= execFileSync('busybox', ['--list'], { encoding: 'utf8' }).split('\n').filter(Boolean)
  return new Map(applets.map(applet => [applet, path]))
}
