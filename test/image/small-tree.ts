import { chmodSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** What a small tree of an image holds: path → content, or `-> target` for a link. */
export type Files = Readonly<Record<string, string>>

/**
 * A small Linux image: two kernels with their initramfs, a file with secrets, no tool that builds an
 * initramfs.
 */
export const small: Files = {
  'boot/vmlinuz-6.1.0-9': 'kernel 9',
  'boot/vmlinuz-6.1.0-10': 'kernel 10',
  'boot/initrd.img-6.1.0-9': 'initramfs 9',
  'boot/initrd.img-6.1.0-10': 'initramfs 10',
  'etc/hostname': 'image\n',
  'etc/shadow': 'root:secret\n',
  'usr/bin/true': '#!/bin/sh\n'
}

/** Makes a tree; returns its path. */
export function makeTree(tree: string, files: Files = small): string {
  // What every Linux has to mount something on.
  for (const name of ['dev', 'proc', 'run', 'sys', 'tmp']) mkdirSync(join(tree, name), { recursive: true })
  for (const [path, content] of Object.entries(files)) {
    const file = join(tree, path)
    mkdirSync(dirname(file), { recursive: true })
    if (content.startsWith('-> ')) symlinkSync(content.slice(3), file)
    else writeFileSync(file, content)
    if (path === 'etc/shadow') chmodSync(file, 0o600)
  }
  // No pack is made without it.
  if (!existsSync(join(tree, 'sbin/init'))) {
    mkdirSync(join(tree, 'sbin'), { recursive: true })
    writeFileSync(join(tree, 'sbin/init'), '#!/bin/sh\n')
  }
  return tree
}
